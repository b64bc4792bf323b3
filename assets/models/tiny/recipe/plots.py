"""The ten plots of the little stories: what happens, in three paragraphs each (see `people`)."""

from people import a, meet, pick
from quests import grow, help, make, seek, sorry
from words import FEEL_BAD, FOODS, SPOTS


def lost(rng, hero, friend, place, toy, color):
    """Something is lost, and found with a friend."""
    it = f"{color} {toy}"
    s1, s2, s3 = rng.sample(SPOTS, 3)
    return [
        pick(
            rng,
            f"{hero.name} had {a(it)} that {hero.he} loved very much. {hero.He} took it everywhere.",
            f"{hero.His} favorite thing was {a(it)}.",
            f"One thing made {hero.name} happier than anything else: {a(it)}.",
        )
        + " "
        + pick(
            rng,
            f"But one morning, the {it} was gone!",
            f"Then, one day, {hero.he} could not find the {it}.",
            f"But after a long walk, {hero.name} saw that the {it} was missing.",
        )
        + pick(
            rng,
            f" {hero.name} felt {rng.choice(FEEL_BAD)}.",
            f' "Oh no!" said {hero.name}. "Where is my {toy}?"',
        ),
        pick(
            rng,
            f"{hero.He} looked {s1}, but it was not there. {hero.He} looked {s2}, but it was not there either.",
            f"First {hero.he} looked {s1}. Then {hero.he} looked {s2}. There was no {toy} to be seen.",
        )
        + " "
        + meet(rng, hero, friend)
        + " "
        + pick(
            rng,
            f'"Why do you look so sad?" asked {friend.name}. "I lost my {it}," said {hero.name}.',
            f'"Can you help me find my {it}?" asked {hero.name}. "Of course," said {friend.name}.',
        ),
        pick(
            rng,
            f"Together they looked {s3}.",
            f'"Let us look {s3}," said {friend.name}. So they did.',
        )
        + " "
        + pick(
            rng,
            f"And there it was, the {it}, shining in the sun!",
            f"Something {color} was hiding there. It was the {toy}!",
            f"There, at last, was the {it}.",
        )
        + " "
        + pick(
            rng,
            f'"Thank you, {friend.name}!" said {hero.name}.',
            f"{hero.name} jumped up and down and gave {friend.name} a big hug.",
        ),
    ]


def share(rng, hero, friend, place, toy, color):
    """Food is shared, and shared back."""
    food = rng.choice(FOODS)
    other_food = rng.choice([x for x in FOODS if x != food])
    return [
        pick(
            rng,
            f"One day, {hero.name} had {a(food)} for lunch. It smelled wonderful.",
            f"{hero.name}'s mother gave {hero.him} {a(food)} to eat on the way.",
            f"{hero.name} sat down near {place} to eat {a(food)}.",
        )
        + " "
        + meet(rng, hero, friend),
        pick(
            rng,
            f"{friend.name} looked hungry. {friend.He} had not eaten all day.",
            f'"I am so hungry," said {friend.name}. "I have nothing to eat."',
        )
        + " "
        + pick(
            rng,
            f"{hero.name} looked at the {food.split(' of ')[0]}. It was not very big. But {hero.he} cut it into two parts.",
            f'"Then let us share," said {hero.name}, and {hero.he} gave {friend.him} half.',
        )
        + f' "Thank you," said {friend.name}. "You are very kind."',
        pick(
            rng,
            f"The next week, it was {hero.name} who had nothing to eat.",
            f"Some days later, {hero.name} forgot to bring lunch.",
        )
        + f" Then {friend.name} came with {a(other_food)}. "
        + pick(
            rng,
            f'"You shared with me," said {friend.name}, "and now I share with you."',
            f'"This is for both of us," said {friend.name} with a smile.',
        ),
    ]


def storm(rng, hero, friend, place, toy, color):
    """Something they built stands through a storm."""
    house = pick(rng, "a tree house", "a house of sticks", "a fort", "a cabin", "a tent")
    return [
        f"{hero.name} wanted to build {house} near {place}. "
        + meet(rng, hero, friend)
        + " "
        + pick(
            rng,
            f'"May I help you?" asked {friend.name}.',
            f'"I can carry the wood," said {friend.name}.',
        )
        + " They worked all morning.",
        pick(
            rng,
            "Suddenly the sky turned dark.",
            "In the afternoon, black clouds came over the hill.",
            "Then the wind began to blow.",
        )
        + " "
        + pick(
            rng, "Rain fell and thunder rolled.", "The rain came down hard and the trees bent low."
        )
        + f" {hero.name} felt {rng.choice(FEEL_BAD)}. "
        + pick(
            rng,
            f'"Hold on to the door!" shouted {friend.name}.',
            f'"We are safe inside," said {friend.name}. "Stay close to me."',
        ),
        pick(
            rng,
            "They sat close together and told stories until the storm was over.",
            "They sang songs so that the thunder did not sound so loud.",
        )
        + " "
        + pick(
            rng,
            f"When they looked outside, there was a rainbow over {place}.",
            "At last the rain stopped and the sun came out again.",
        )
        + f" The {house.split(' ', 1)[1]} was still standing.",
    ]


def fear(rng, hero, friend, place, toy, color):
    """A fear is overcome step by step."""
    what, act = rng.choice(
        [
            ("the dark", "walk through the dark cave"),
            ("deep water", "swim across the pond"),
            ("high places", "climb the tall tree"),
            ("loud noises", "listen to the big drum"),
            ("the old bridge", "walk across the old bridge"),
        ]
    )
    return [
        f"{hero.name} was afraid of {what}. "
        + pick(
            rng,
            f"When the others played, {hero.he} stayed at home.",
            f"{hero.He} did not tell anyone about it.",
            f"{hero.He} wished {hero.he} could be brave.",
        )
        + " "
        + meet(rng, hero, friend),
        pick(
            rng,
            f'"What is wrong?" asked {friend.name}.',
            f'"Why do you not come with us?" asked {friend.name}.',
        )
        + f' "I am afraid of {what}," said {hero.name} in a low voice. '
        + pick(
            rng,
            f'"I was afraid too," said {friend.name}. "Let us try together, one step at a time."',
            f'"Hold my hand," said {friend.name}. "We will go slowly."',
        ),
        pick(
            rng,
            "First they took one small step. Then they took one more.",
            f"{hero.name} counted: one, two, three. {hero.His} heart beat fast.",
        )
        + f" Before long, {hero.name} was able to {act}. "
        + pick(
            rng,
            f'"I did it!" {hero.he} shouted.',
            f'"Look at me!" said {hero.name}. "I am not afraid any more!"',
        ),
    ]


def race(rng, hero, friend, place, toy, color):
    """The slow one wins a race."""
    return [
        meet(rng, hero, friend)
        + " "
        + pick(
            rng,
            f'"I am the fastest in all of {place}," said {friend.name}. "No one can beat me."',
            f"{friend.name} was very fast and liked to tell everyone about it.",
        )
        + f' "Let us have a race," said {hero.name}.',
        f"They started near {place}. "
        + pick(
            rng,
            f"{friend.name} ran ahead and was soon out of sight.",
            f"At first, {friend.name} was far in front.",
        )
        + " "
        + pick(
            rng,
            f"{friend.He} was so sure of winning that {friend.he} sat down to rest and fell asleep.",
            f"But {friend.he} stopped to look at the flowers and forgot about the race.",
        )
        + f" {hero.name} did not stop. {hero.He} went on, step by step.",
        pick(
            rng,
            f"When {friend.name} looked up, {hero.name} was already at the end.",
            f"{hero.name} came to the end first, and everyone cheered.",
        )
        + " "
        + pick(
            rng,
            f'"You won," said {friend.name}. "I will not boast again."',
            f'"Well done," said {friend.name}. "Next time I will try harder."',
        )
        + f' "It was fun to run with you," said {hero.name}.',
    ]


PLOTS = {
    plot.__name__: plot for plot in (lost, share, storm, fear, race, make, help, seek, grow, sorry)
}
"""The plots by name; the order is part of the text that a seed writes."""
