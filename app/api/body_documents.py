"""Documents that bodies of requests are, for the API's description: routes parse them by hand."""

from app.api.schemas import (
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
from app.formats.annotation.task_documents import AdjudicationRequest, AnnotationRequest, TaskDocument, UndoRequest
from app.formats.annotation.traffic_documents import ForgetRequest, ReachRequest, SuggestionsRequest
from app.formats.catalog.canary_files import CanaryFile
from app.formats.catalog.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
    SuiteDocument,
)
from app.formats.experiments.experiment_documents import ExperimentDocument, Exposure, UnitOutcome
from app.formats.experiments.interleaving_documents import Click, InterleavingDocument, ListsRequest
from app.formats.experiments.promotion_documents import PromotionDocument, WaiverRequest
from app.formats.experiments.shadow_documents import ShadowDocument, ShadowPair
from app.formats.fields import Document
from app.formats.generation.feedback_documents import FeedbackRequest

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
