"""The demo's answers: what its answerer and its judge say, and the whole of it with one switch."""

from pathlib import Path

import httpx2

from app.answers.domain.judges import AnswerToJudge, Question, build_prompt
from app.demo import answering
from app.demo.server import create_demo
from tests.support.living import coalmine, serving, until

CANARIES = Path(__file__).parents[2] / "canaries" / "with-answers"
PASSAGES = ("Logs are kept for 30 days. They can be searched.", "Invoices are sent monthly.")


def reply(question: Question, answer: str, contexts: tuple[str, ...] = PASSAGES) -> str:
    """Give the judge's reply to one of our prompts."""
    judged = AnswerToJudge(query="How long are logs kept?", contexts=contexts, answer=answer, expected="30 days.")
    prompt = build_prompt(question, judged, "a" * 16)
    return answering.judge_answer(f"{prompt.system}\n{prompt.user}")


def test_answers_are_sentences_of_the_passages() -> None:
    assert answering.answer_question("Which invoices?", PASSAGES) == PASSAGES[1]
    assert answering.answer_question("Who is the king?", PASSAGES) == answering.DECLINED
    wrong = [
        number for number in range(400) if "33" in answering.answer_question(f"logs kept 30 days {number}", PASSAGES)
    ]
    assert 0.05 < len(wrong) / 400 < 0.2, "about every eighth"


def test_the_judge_errs_as_often_as_it_says() -> None:
    numbers = [f"Row {number} has {number} cells." for number in range(1_000)]
    good = sum(reply(Question.FAITHFUL, text, (text,)) == "YES" for text in numbers)
    bad = sum(reply(Question.FAITHFUL, text, ("Nothing.",)) == "NO" for text in numbers)
    assert abs(good / 1_000 - answering.SENSITIVITY) < 0.03
    assert abs(bad / 1_000 - answering.SPECIFICITY) < 0.04


def test_each_question_gets_a_reply_that_can_be_read() -> None:
    assert reply(Question.FAITHFULNESS, answering.DECLINED) == '{"claims": []}'
    for question in (Question.FAITHFULNESS, Question.ANSWER_RELEVANCE, Question.CORRECTNESS):
        assert '"supported": ' in reply(question, "Logs are kept for 30 days.")


def test_with_one_switch_answers_are_made_judged_and_shown(tmp_path: Path) -> None:
    with (
        serving(create_demo()) as demo,
        coalmine(tmp_path, canaries=CANARIES, environment={"DEMO_URL": demo}) as (url, _),
        httpx2.Client(base_url=url) as client,
    ):
        run = client.post("/v1/checks/dataforge-answers/runs").json()

        def rated() -> bool:
            return bool(client.get(f"/v1/runs/{run['id']}/answers").json()["status"] == "rated")

        until(rated, seconds=120)
        page = client.get(f"/v1/runs/{run['id']}/answers", params={"limit": 500}).json()
        measures = page["summary"]["measures"]
        assert 0.5 < measures["faithful"] < 1, "some numbers are wrong, and the judge errs"
        assert measures["utilisation"] > 0.8
        assert {one["outcome"] for one in page["items"]} == {"ok"}
        report = client.get("/v1/judges/demo-judge/report").json()
        assert report["today"]["cost"] > 0
        assert not report["calibrated"]
