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
    assert base("torch_dynamo_resume_in__at_3") == "torch_dynamo_resume_in__at_3"
    # A name in a damaged file: read once, and not once for each time that it goes on.
    many = 20_000
    long = "torch_dynamo_resume_in_" * many + "f" + "_at_1" * many
    assert base(long) == "f" and resumed(long)[1] == 1
    assert resumed("torch_dynamo_resume_in_f_at_" + "9" * 5000)[1] is None
