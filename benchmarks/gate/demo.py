"""The demo, as a program."""

from instrumented_backend.demo import train

if __name__ == "__main__":
    train(steps=5)
