"""Documents that bodies of requests are, for the API's description: routes parse them by hand."""

from app.annotation.documents.task_documents import AdjudicationRequest, AnnotationRequest, TaskDocument, UndoRequest
from app.answers.documents.feedback_documents import FeedbackRequest
from app.base.api.schemas import (
    AcknowledgeRequest,
    BaselineRequest,
    NotNormalRequest,
    ReanchorRequest,
    RescoringRequest,
    RunRequest,
    SuiteFiles,
    TextFiles,
    TryRequest,
)
from app.base.documents.fields import Document
from app.catalog.documents.canary_files import CanaryFile
from app.catalog.documents.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
    SuiteDocument,
)
from app.experiments.documents.experiment_documents import ExperimentDocument, Exposure, UnitOutcome
from app.experiments.documents.interleaving_documents import Click, InterleavingDocument, ListsRequest
from app.experiments.documents.promotion_documents import PromotionDocument, WaiverRequest
from app.experiments.documents.shadow_documents import ShadowDocument, ShadowPair
from app.traffic.documents.traffic_documents import ForgetRequest, ReachRequest, SuggestionsRequest

DOCUMENTS: tuple[type[Document], ...] = (
    SuiteDocument,
    CanaryDocument,
    RetrieverDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    SilenceDocument,
    CanaryFile,
    SuiteFiles,
    TextFiles,
    TaskDocument,
    AnnotationRequest,
    UndoRequest,
    AdjudicationRequest,
    ReachRequest,
    ForgetRequest,
    SuggestionsRequest,
    ExperimentDocument,
    Exposure,
    UnitOutcome,
    InterleavingDocument,
    ListsRequest,
    Click,
    PromotionDocument,
    WaiverRequest,
    ShadowDocument,
    ShadowPair,
    FeedbackRequest,
    RunRequest,
    RescoringRequest,
    TryRequest,
    ReanchorRequest,
    AcknowledgeRequest,
    BaselineRequest,
    NotNormalRequest,
)
