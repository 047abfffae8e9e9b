"""``--impl`` puts a version of the reader's own on the workbench; Hypothesis profiles.

``--hypothesis-profile thorough`` runs more examples, and the larger walks marked ``thorough``.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, settings

from tests.workbench import FORM, PATIENCE, laid_out, load

# One story at a time, the shortest, without remarks on which of its parts matter.
EVERYWHERE = settings(
    deadline=None,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.register_profile("default", EVERYWHERE, derandomize="CI" in os.environ)
settings.register_profile("thorough", EVERYWHERE, max_examples=2000)
#: The same version is told the same story each time, until it is mended.
settings.register_profile("workbench", EVERYWHERE, derandomize=True)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workbench", "the workbench")
    group.addoption(
        "--impl",
        action="append",
        default=[],
        metavar="NAME=PATH:ATTRIBUTE",
        help=f"put your own version under the promises, and run nothing else: {FORM}",
    )
    group.addoption(
        "--impl-seconds",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="how long one promise may take before your version is cut off (default: %(default)g)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--impl"):
        config.option.reportchars = "s"  # the stories say it all; what was skipped tells no story
    config.addinivalue_line("markers", "thorough: only under --hypothesis-profile thorough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hypothesis-profile") == "thorough":
        return
    skip = pytest.mark.skip(reason="needs --hypothesis-profile thorough")
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(skip)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """With ``--impl``, the tests are the promises, and no file is looked into."""
    config = session.config
    asked = config.getoption("--impl")
    if not asked:
        return None
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("workbench")
    patience = config.getoption("--impl-seconds")
    implementations = [load(one, config.invocation_params.dir) for one in asked]
    session.items = list(laid_out(session, implementations, patience))
    session.testscollected = len(session.items)
    config.hook.pytest_collection_finish(session=session)
    return True
