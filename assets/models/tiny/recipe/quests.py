"""Plots in which something is made, mended, found or grown (see `plots`)."""

from people import a, meet, pick
from words import FEEL_BAD, FEEL_GOOD, SPOTS


def make(rng, hero, friend, place, toy, color):
    """A thing is made together."""
    thing, part, where = rng.choice(
        [
            ("a big cake", "some milk", "the farm"),
            ("a wooden boat", "a strong rope", "the seaside"),
            ("a warm blanket", "some soft wool", "the hill"),
            ("a flower crown", "some yellow flowers", "the meadow"),
            ("a pot of soup", "some fresh water", "the river"),
            ("a paper lantern", "a small candle", "the village"),
        ]
    )
    return [
        f"{hero.name} wanted to make {thing}. "
        + pick(
            rng,
            f"It was a gift for {hero.his} grandmother.",
            "It was for the big party that evening.",
            f"{hero.He} had dreamed about it all week.",
        )
        + f" But {hero.he} did not have {part}.",
        meet(rng, hero, friend)
        + " "
        + f'"I need {part}," said {hero.name}. '
        + pick(
            rng,
            f'"I know where to find it," said {friend.name}. "Let us go to {where}."',
            f'"You can get that at {where}," said {friend.name}. "I will come with you."',
        )
        + f" So they walked all the way to {where} and back.",
        pick(rng, "They worked side by side.", f"{friend.name} helped, and the work went fast.")
        + " "
        + pick(
            rng,
            f"In the end, {thing} was ready, and it was beautiful.",
            f"When the sun went down, they looked at {thing} and smiled.",
        )
        + " "
        + pick(rng, "Everyone loved it.", f'"We made it together," said {hero.name}.'),
    ]


def help(rng, hero, friend, place, toy, color):
    """Help is given, and comes back."""
    trouble, fix = rng.choice(
        [
            ("had a thorn in one foot", "pulled out the thorn very gently"),
            ("was stuck in the mud", "pulled with all might until the mud let go"),
            ("had lost the way home", "drew a map in the sand and showed the way"),
            ("had fallen into a hole", "let down a long rope"),
            ("was caught in a net", "bit through the net, one string at a time"),
        ]
    )
    return [
        f"While walking near {place}, {hero.name} heard a small cry. It was {friend.name}{', ' + a(friend.trait) + ' ' + friend.kind if not hero.met else ''}. {friend.name} {trouble}. "
        + pick(
            rng,
            f'"Please help me," said {friend.name}.',
            f"{friend.He} looked {rng.choice(FEEL_BAD)}.",
        ),
        pick(
            rng,
            f'"Do not worry," said {hero.name}. "I will help you."',
            f"{hero.name} was not big, but {hero.he} wanted to help.",
        )
        + f" {hero.He} {fix}. "
        + pick(
            rng,
            f'"Thank you!" said {friend.name}. "I will never forget this."',
            f"{friend.name} was free and {rng.choice(FEEL_GOOD)}.",
        ),
        pick(
            rng,
            f"Not long after, {hero.name} needed help too.",
            f"A few days later, {hero.name} lost the path in the fog.",
        )
        + f" {friend.name} heard {hero.him} calling and came at once. "
        + pick(
            rng,
            f'"You helped me," said {friend.name}. "Now I help you."',
            f"Together they found the way back to {place}.",
        ),
    ]


def seek(rng, hero, friend, place, toy, color):
    """A map leads to a treasure."""
    s1, s2 = rng.sample(SPOTS, 2)
    treasure = rng.choice(
        [
            "a box full of old songs",
            f"{a(color)} {toy} with a letter",
            "a jar of seeds",
            "a mirror that showed two friends",
            "a picture of the whole village",
        ]
    )
    return [
        pick(
            rng,
            f"One morning, {hero.name} found an old map {s1}.",
            f"{hero.name} found a bottle {s1}. There was a map inside!",
        )
        + " It showed the way to a treasure. "
        + meet(rng, hero, friend)
        + f' "Let us find it together," said {hero.name}.',
        f"They walked past {place}, over a hill and through a dark wood. "
        + pick(
            rng,
            f'"I am tired," said {friend.name}. "Just a little more," said {hero.name}.',
            f"When {hero.name} wanted to turn back, {friend.name} said, "
            + '"We are almost there."',
        )
        + f" The map said: dig {s2}.",
        f"They dug and dug. At last they found {treasure}. "
        + pick(
            rng,
            f"It was not gold, but {hero.name} was {rng.choice(FEEL_GOOD)}.",
            f'"This is better than gold," said {friend.name}.',
        ),
    ]


def grow(rng, hero, friend, place, toy, color):
    """A seed needs patience."""
    plant = rng.choice(["a sunflower", "an apple tree", "a pumpkin", "a rose", "a bean plant"])
    return [
        pick(
            rng,
            f"{hero.name} had a small seed.",
            f"An old woman in {place} gave {hero.name} a seed.",
        )
        + f" {hero.He} put it into the ground and gave it water. "
        + pick(
            rng,
            f"The next day, {hero.he} looked, but nothing had grown.",
            "One day passed, and then another. Nothing happened.",
        ),
        meet(rng, hero, friend)
        + " "
        + f'"My seed does not grow," said {hero.name}. '
        + pick(
            rng,
            f'"You must wait," said {friend.name}. "Give it water and sun."',
            f'"Seeds are slow," said {friend.name}. "Let us care for it together."',
        )
        + " So every day they gave it water and sang to it.",
        pick(
            rng,
            "Then, one morning, a small green leaf came out of the ground.",
            "After many days, something green was there.",
        )
        + f" It grew and grew. In the summer it was {plant}, the most beautiful in all of {place}.",
    ]


def sorry(rng, hero, friend, place, toy, color):
    """A broken thing, and the truth about it."""
    it = f"{color} {toy}"
    return [
        f"{friend.name} the {friend.kind} had {a(it)}. One day, {hero.name} played with it, and it broke. "
        + pick(
            rng,
            f"{hero.name} was afraid and hid the {toy} {rng.choice(SPOTS)}.",
            f"{hero.name} did not know what to do, so {hero.he} said nothing.",
        ),
        f"{friend.name} looked for the {it} all day. "
        + pick(
            rng,
            f'"Have you seen my {toy}?" {friend.he} asked.',
            f"{friend.He} was {rng.choice(FEEL_BAD)}.",
        )
        + f" {hero.name} felt bad inside. That night, {hero.he} could not sleep.",
        f"In the morning, {hero.name} went to {friend.name}. "
        + f'"I broke your {toy}," said {hero.name}. "I am sorry." '
        + pick(
            rng,
            f'"Thank you for telling me," said {friend.name}. "We can mend it together."',
            f"{friend.name} was quiet for a while. Then {friend.he} smiled. "
            + '"It is only a thing. You are my friend."',
        ),
    ]
