"""Questions with short answers: facts, the course's own words, sums, lists and counting."""

from facts import (
    CAPITALS,
    DAYS,
    GLOSSARY,
    HUES,
    LISTS,
    MONTHS,
    NUMBERS,
    OPPOSITES,
    SMALL_TALK,
    SOUNDS,
    USES,
    YOUNG,
)  # fmt: skip
from people import a, pick


def answer(rng):
    """A question and its answer; the kinds come with the shares of `KINDS`."""
    k = rng.random()
    return next(kind for share, kind in KINDS if k < share)(rng)


def upper_first(text):
    """The text as a sentence begins."""
    return text[0].upper() + text[1:]


def small_talk(rng):
    """Who the model is, and good manners."""
    return rng.choice(SMALL_TALK)


def glossary(rng):
    """A word of the course."""
    term = rng.choice(list(GLOSSARY))
    bare = term.split(" ", 1)[1] if term.startswith(("a ", "an ")) else term
    question = pick(
        rng,
        f"What is {term}?",
        f"What is {term}?",
        f"Explain {term}.",
        f"Can you explain {term}?",
        f"Please explain what {term} is.",
        f"Tell me about {term}.",
        f"What does {bare} mean?",
    )
    return question, GLOSSARY[term]


def capital(rng):
    """A country's capital."""
    land = rng.choice(list(CAPITALS))
    question = pick(
        rng,
        f"What is the capital of {land}?",
        f"Which city is the capital of {land}?",
        f"Name the capital of {land}.",
    )
    return question, f"The capital of {land} is {CAPITALS[land]}."


def sound(rng):
    """What an animal says."""
    animal = rng.choice(list(SOUNDS))
    question = pick(rng, f"What sound does {a(animal)} make?", f"What does {a(animal)} say?")
    return question, f"{upper_first(a(animal))} says {SOUNDS[animal]}."


def young(rng):
    """What a young animal is called."""
    animal = rng.choice(list(YOUNG))
    question = pick(rng, f"What is a baby {animal} called?", f"What do you call a baby {animal}?")
    return question, f"A baby {animal} is called {a(YOUNG[animal])}."


def opposite(rng):
    """A word and its opposite, in either direction."""
    word = rng.choice(list(OPPOSITES))
    one, other = (word, OPPOSITES[word]) if rng.random() < 0.5 else (OPPOSITES[word], word)
    question = pick(rng, f"What is the opposite of {one}?", f"Tell me the opposite of {one}.")
    return question, f"The opposite of {one} is {other}."


def hue(rng):
    """The colour of a thing."""
    thing = rng.choice(list(HUES))
    question = pick(rng, f"What color is {thing}?", f"Tell me the color of {thing}.")
    return question, f"{upper_first(thing)} is {HUES[thing]}."


def use(rng):
    """What a thing is good for."""
    thing = rng.choice(list(USES))
    question = pick(rng, f"What do you do with {thing}?", f"What is {thing} for?")
    return question, f"You use {thing} to {USES[thing]}."


def some_of_a_kind(rng):
    """Two to five members of a group."""
    group = rng.choice(list(LISTS))
    count = rng.choice([2, 3, 3, 4, 5])
    *first, last = rng.sample(LISTS[group], count)
    number = NUMBERS[count]
    question = pick(
        rng,
        f"Name {number} {group}.",
        f"Tell me {number} {group}.",
        f"Can you name {number} {group}?",
    )
    return question, f"{upper_first(number)} {group} are {', '.join(first)} and {last}."


def calendar(rng):
    """Days and months: all of them, the next, the one before."""
    names, word = rng.choice([(DAYS, "day"), (MONTHS, "month")])
    span = "week" if word == "day" else "year"
    i = rng.randrange(len(names))
    if rng.random() < 0.3:
        question = pick(
            rng, f"Name the {word}s of the {span}.", f"What are the {word}s of the {span}?"
        )
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        return question, f"The {word}s of the {span} are {listed}."
    if rng.random() < 0.5:
        following = names[(i + 1) % len(names)]
        return f"Which {word} comes after {names[i]}?", f"After {names[i]} comes {following}."
    return f"Which {word} comes before {names[i]}?", f"Before {names[i]} comes {names[i - 1]}."


def arithmetic(rng):
    """Small sums, differences and products, and which of two numbers is bigger."""
    operation = rng.choice("+++-*>")
    if operation == "+":
        x, y = rng.randint(0, 20), rng.randint(0, 20)
        question = pick(rng, f"What is {x} plus {y}?", f"What is {x} + {y}?", f"Add {x} and {y}.")
        return question, f"{x} plus {y} is {x + y}."
    if operation == "-":
        x, y = sorted((rng.randint(0, 20), rng.randint(0, 20)), reverse=True)
        question = pick(rng, f"What is {x} minus {y}?", f"What is {x} - {y}?")
        return question, f"{x} minus {y} is {x - y}."
    if operation == "*":
        x, y = rng.randint(1, 10), rng.randint(1, 10)
        return f"What is {x} times {y}?", f"{x} times {y} is {x * y}."
    x, y = rng.sample(range(100), 2)
    return f"Which is bigger, {x} or {y}?", f"{max(x, y)} is bigger than {min(x, y)}."


def counting(rng):
    """Count up or down: the length of the answer can be chosen, which batching lessons use."""
    first = rng.choice([1, 1, 1, 1, rng.randint(1, 60)])
    count = rng.choice([rng.randint(3, 12), rng.randint(5, 40), rng.randint(20, 99)])
    last = min(99, first + count)
    if rng.random() < 0.12:
        last = min(last, first + 20)
        return f"Count down from {last} to {first}.", _listed(range(last, first - 1, -1))
    question = pick(
        rng,
        f"Count from {first} to {last}.",
        f"Please count from {first} to {last}.",
        f"Can you count from {first} to {last}?",
    )
    return question, _listed(range(first, last + 1))


def _listed(numbers):
    return ", ".join(map(str, numbers)) + "."


KINDS = (
    (0.08, small_talk),
    (0.34, glossary),
    (0.42, capital),
    (0.46, sound),
    (0.50, young),
    (0.55, opposite),
    (0.59, hue),
    (0.62, use),
    (0.66, some_of_a_kind),
    (0.70, calendar),
    (0.86, arithmetic),
    (1.00, counting),
)
"""Upper end of each kind's share of the answers."""
