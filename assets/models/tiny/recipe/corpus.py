"""Writes the training text: little stories, and chats in Llama 3.2's form.

python corpus.py 120000000 1 train.jsonl    # characters, seed, file: one JSON string a line
"""

import json
import sys
from random import Random

from answers import answer
from facts import MONTHS
from people import Who, a, again, end, intro, pick
from plots import PLOTS
from words import COLORS, PLACES, TOPICS, TOYS

BOS, EOS, EOT = "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"
SIZES = ["short", "normal", "normal", "long"]
SHORT_PARTS = {"share": (0, 1), "help": (0, 1), "sorry": (0, 2), "seek": (0, 2)}
"""The paragraphs that a short story keeps, where it does not keep all three."""
SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are a helpful assistant",
    "You tell stories to children.",
    "Answer in a friendly way.",
    "",
]
LONGEST_CHAT = 2200  # characters


def story(rng, size):
    """A request and the story that answers it. `size` is short, normal or long."""
    hero = Who(rng)
    friend = Who(rng, (hero.name,))
    place, toy, color = rng.choice(PLACES), rng.choice(TOYS), rng.choice(COLORS)
    first_toy = toy
    plots = rng.sample(list(PLOTS), 1 if size != "long" else rng.choice([2, 2, 3]))
    paragraphs = []
    for i, plot in enumerate(plots):
        if i:
            toy, color = rng.choice(TOYS), rng.choice(COLORS)
        body = PLOTS[plot](rng, hero, friend, place, toy, color)
        hero.met = True
        head = intro(rng, hero, place) if i == 0 else again(rng, hero, place)
        if size == "short":
            paragraphs.append(
                " ".join([head, *(body[k] for k in SHORT_PARTS.get(plot, (0, 1, 2)))])
            )
        else:
            paragraphs += [head + " " + body[0], body[1], body[2]]
    paragraphs.append(end(rng, hero, friend, plots[-1]) + pick(rng, "", "", " The end."))
    text = (" " if size == "short" else "\n\n").join(paragraphs)
    return request(rng, size, plots[0], hero, friend, first_toy), text


def request(rng, size, plot, hero, friend, toy):
    """What a reader says to get such a story."""
    lengths = {
        "short": pick(rng, "short ", "very short ", "little "),
        "normal": "",
        "long": pick(rng, "long ", "very long "),
    }
    topic = f"a lost {toy}" if plot == "lost" else TOPICS[plot]
    subjects = [
        f"{a(hero.kind)} named {hero.name}",
        f"{hero.name} the {hero.kind}",
        f"{a(hero.trait + ' ' + hero.kind)} named {hero.name}",
        f"{a(hero.trait)} {hero.kind} named {hero.name} and {a(friend.kind)} named {friend.name}",
        f"{hero.name} the {hero.kind} and {friend.name} the {friend.kind}",
        topic,
        f"{topic} with {a(hero.kind)} named {hero.name}",
        f"{hero.name} the {hero.kind} and {topic}",
    ]
    subject, kind = rng.choice(subjects), f"{lengths[size]}story"
    question = pick(
        rng,
        f"Tell me a {kind} about {subject}.",
        f"Write a {kind} about {subject}.",
        f"Please tell me a {kind} about {subject}.",
        f"Can you tell me a {kind} about {subject}?",
        f"I would like a {kind} about {subject}.",
    )
    if rng.random() < 0.08:
        bedtime = f"Tell me a {lengths[size]}bedtime story."
        question = pick(rng, f"Tell me a {kind}.", f"Write a {kind}.", bedtime)
    return question


def turn(role, text):
    """One message as Llama 3 writes it."""
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}{EOT}"


def system_block(rng):
    """Mostly with the date, as Llama 3.2's template has it; sometimes plain; sometimes none."""
    if rng.random() < 0.6:
        month = [name[:3] for name in MONTHS]
        date = f"{rng.randint(1, 28):02d} {rng.choice(month)} {rng.randint(2024, 2027)}"
        dates = f"Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n"
        return turn("system", dates + rng.choice(SYSTEM_PROMPTS))
    if rng.random() < 0.3:
        return turn("system", rng.choice(SYSTEM_PROMPTS[:-1]))
    return ""


def chat(rng):
    """One to three questions with their answers."""
    text = BOS + system_block(rng)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        tell = rng.random() < 0.5
        question, reply = story(rng, rng.choice(SIZES)) if tell else answer(rng)
        text += turn("user", question) + turn("assistant", reply)
        if len(text) > LONGEST_CHAT:
            break
    return text


def document(rng):
    """One document: a plain story, or a chat."""
    if rng.random() < 0.22:
        return BOS + story(rng, rng.choice(SIZES))[1] + EOS
    return chat(rng)


def documents(seed):
    """The endless corpus of a seed."""
    rng = Random(seed)
    while True:
        yield document(rng)


def write_corpus(path, num_characters, seed):
    """Write documents until they have so many characters together."""
    total = 0
    with open(path, "w", encoding="utf-8") as file:
        for text in documents(seed):
            file.write(json.dumps(text) + "\n")
            total += len(text)
            if total >= num_characters:
                return


if __name__ == "__main__":
    write_corpus(sys.argv[3], int(sys.argv[1]), int(sys.argv[2]))
