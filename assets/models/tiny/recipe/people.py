"""Who acts in a story, and the sentences that begin it, bring a friend and end it.

Every function draws from `rng` in a fixed order, alternatives that are not taken included, so that a
seed always writes the same text: the shipped tokenizer was trained on it.
"""

from words import (
    CHILD,
    FEEL_GOOD,
    KINDS,
    MORALS,
    NAMES,
    PRONOUNS,
    SIZES,
    TRAITS,
    WEATHER,
)


def a(words):
    """The words with their article."""
    return ("an " if words[0] in "aeiou" else "a ") + words


def pick(rng, *alternatives):
    """One of the alternatives."""
    return rng.choice(alternatives)


def lower_first(text):
    """The text as it goes on after a colon."""
    return text[0].lower() + text[1:]


class Who:
    """A hero or a friend: name, kind, trait, size and pronouns."""

    def __init__(self, rng, used=()):
        pronoun = rng.choice(["she", "he"])
        self.name = rng.choice([name for name in NAMES[pronoun] if name not in used])
        self.kind = rng.choice(KINDS) if rng.random() < 0.75 else CHILD[pronoun]
        self.trait = rng.choice(TRAITS)
        self.size = rng.choice(SIZES)
        self.he, self.him, self.his, self.He, self.His = PRONOUNS[pronoun]
        self.met = False


def intro(rng, hero, place):
    """Who the story is about, and where."""
    who = (
        f"{hero.size} {hero.kind}"
        if rng.random() < 0.5
        else f"{hero.trait} {hero.size} {hero.kind}"
    )
    first = pick(
        rng,
        f"Once upon a time, there was {a(who)} named {hero.name}.",
        f"Once there was {a(who)} called {hero.name}.",
        f"In {place}, there lived {a(who)} named {hero.name}.",
        f"One day, {a(who)} named {hero.name} woke up early.",
        f"Long ago, {a(who)} named {hero.name} lived near {place}.",
    )
    second = pick(
        rng,
        f"{hero.name} was {hero.trait} and loved to play near {place}.",
        f"{hero.He} lived in {a(hero.size)} house near {place}.",
        f"Everyone in {place} knew that {hero.name} was {hero.trait}.",
        f"{hero.He} liked to walk around {place} every morning.",
        "",
    )
    return " ".join(
        x for x in (first, second, rng.choice(WEATHER) if rng.random() < 0.6 else "") if x
    )


def again(rng, hero, place):
    """The hero comes back for another plot of a long story."""
    return pick(
        rng,
        f"The next day, {hero.name} went back to {place}.",
        f"A week later, {hero.name} had another adventure.",
        f"But that was not the end of the story. Soon, {hero.name} was busy again.",
    ) + (" " + rng.choice(WEATHER) if rng.random() < 0.6 else "")


def meet(rng, hero, friend):
    """The friend appears: introduced the first time, known afterwards."""
    if hero.met:
        return pick(
            rng,
            f"Soon {friend.name} came along.",
            f"{friend.name} the {friend.kind} was there too.",
            f"On the way, {hero.he} met {friend.name} again.",
            f"{friend.name} heard {hero.him} and came closer.",
        )
    hero.met = True
    return pick(
        rng,
        f"Just then, {a(friend.kind)} named {friend.name} came by.",
        f"On the way, {hero.he} met {friend.name} the {friend.kind}.",
        f"Then {hero.he} saw {friend.name}, {a(friend.trait)} {friend.kind}.",
        f"{hero.His} friend {friend.name} the {friend.kind} heard {hero.him} and came closer.",
    )


def end(rng, hero, friend, plot):
    """How it ends, and what they learned."""
    scene = pick(
        rng,
        f"From that day on, {hero.name} and {friend.name} were best friends.",
        f"{hero.name} and {friend.name} laughed and walked home together.",
        f"That night, {hero.name} fell asleep with a smile.",
        f"{hero.name} was {rng.choice(FEEL_GOOD)}, and so was {friend.name}.",
    )
    moral = rng.choice(MORALS[plot])
    return (
        scene
        + " "
        + pick(
            rng,
            moral,
            f"{hero.name} learned something that day: {lower_first(moral)}",
            f"And so they learned that {lower_first(moral)}",
        )
    )
