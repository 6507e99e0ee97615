"""The tests of storage. `contract` holds what every engine must do; `test_contract` runs it on those there are."""

import pytest

pytest.register_assert_rewrite("tests.storage.builders", "tests.storage.contract")
