from __future__ import annotations

import kit.delivery
import kit.runner


def test_every_public_name_of_the_runner_loads() -> None:
    assert sorted(kit.runner.__all__) == sorted(kit.runner._HOMES)
    for name in kit.runner.__all__:
        assert getattr(kit.runner, name) is not None


def test_every_public_name_of_delivery_is_there() -> None:
    for name in kit.delivery.__all__:
        assert getattr(kit.delivery, name) is not None
