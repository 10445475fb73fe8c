"""The story of three strategies as a demo: hybrid wins offline, loses with users, and its promotion is stopped.

    python -m benchmarks.promotion_story [DATA_DIR]

Plays it through the services over an empty database and prints what they say. With DATA_DIR the database stays there:
`coalmine serve --data-dir DATA_DIR` shows it on the pages /promotions/hybrid and /experiments/hybrid-search.
"""

import sys
import tempfile
from pathlib import Path

from app.base.db.engine import Store
from app.base.db.files import migrate
from tests.support.promotion_story import Story, tell_story


def main(data_dir: str | None = None) -> None:
    """Play the story and print it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(data_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(f"sqlite:///{folder}/coalmine.db")
        migrate(store)
        show(tell_story(store))
        store.close()


def show(story: Story) -> None:
    """Print what the service says."""
    print(f"offline, vector (A) against hybrid (B): {story.comparison['sentence']}\n")
    for arm in story.experiment["arms"]:
        rate = f"{arm['rate']:.3f}" if arm["rate"] is not None else "unknown"
        print(f"{arm['name']}: {arm['units']:,} units, satisfied {rate}")
    print(f"experiment: {story.experiment['state']}; {story.experiment['reason']}\n")
    for gate in story.promotion["gates"]:
        print(f"{gate['gate']}: {gate['result']}\n  {gate['reason']}")
    print(f"\npromotion of hybrid: {story.promotion['state']}\n  {story.promotion['reason']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
