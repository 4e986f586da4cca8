"""The names that Dynamo gives to functions."""

from instrumented_backend.compare.functions import base
from instrumented_backend.records.functions import resumed


def test_the_rest_of_a_function() -> None:
    assert resumed("torch_dynamo_resume_in_f_at_9") == ("f", 9)
    assert resumed("torch_dynamo_resume_in_<lambda>_at_12") == ("<lambda>", 12)
    assert resumed("f_at_9") == ("f_at_9", None)


def test_the_rest_of_a_rest() -> None:
    again = "torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_9_at_12"
    assert resumed(again) == ("torch_dynamo_resume_in_f_at_9", 12)
    assert base(again) == "f"
    assert base(None) == "?"
