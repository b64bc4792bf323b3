"""The words that stories and answers are made of. All of it was written for this course."""

NAMES = {
    "she": [
        "Lily",
        "Mia",
        "Anna",
        "Ella",
        "Rosa",
        "Nina",
        "Ruby",
        "Zoe",
        "Ivy",
        "Luna",
        "Clara",
        "Maya",
        "Tess",
        "Hazel",
        "Olive",
        "Poppy",
        "Willow",
        "Daisy",
        "Molly",
        "Nora",
    ],
    "he": [
        "Tom",
        "Ben",
        "Max",
        "Sam",
        "Leo",
        "Finn",
        "Oscar",
        "Hugo",
        "Jack",
        "Theo",
        "Milo",
        "Toby",
        "Noah",
        "Felix",
        "Otto",
        "Pip",
        "Bruno",
        "Ned",
        "Rufus",
        "Jasper",
    ],
}
"""Names by pronoun."""
KINDS = [
    "fox",
    "rabbit",
    "bear",
    "mouse",
    "cat",
    "dog",
    "owl",
    "duck",
    "frog",
    "hedgehog",
    "squirrel",
    "turtle",
    "deer",
    "beaver",
    "otter",
    "badger",
    "goat",
    "lamb",
    "pony",
    "penguin",
]
TRAITS = [
    "brave",
    "kind",
    "curious",
    "clever",
    "gentle",
    "shy",
    "cheerful",
    "careful",
    "playful",
    "patient",
    "quiet",
    "friendly",
]
SIZES = ["little", "small", "young", "tiny"]
COLORS = [
    "red",
    "blue",
    "green",
    "yellow",
    "purple",
    "orange",
    "white",
    "silver",
    "golden",
    "brown",
]
TOYS = [
    "ball",
    "kite",
    "hat",
    "scarf",
    "drum",
    "book",
    "lantern",
    "boat",
    "whistle",
    "button",
    "ribbon",
    "bell",
    "key",
    "spoon",
    "basket",
]
FOODS = [
    "apple",
    "pear",
    "berry pie",
    "loaf of bread",
    "carrot cake",
    "honey cake",
    "bowl of soup",
    "plum tart",
    "bag of nuts",
    "slice of cheese",
]
PLACES = [
    "the forest",
    "the village",
    "the meadow",
    "the hill",
    "the river",
    "the farm",
    "the garden",
    "the seaside",
    "the old mill",
    "the valley",
]
SPOTS = [
    "under the bed",
    "behind the old tree",
    "by the river",
    "in the tall grass",
    "near the gate",
    "on top of the hill",
    "inside the barn",
    "beside the well",
    "under the bridge",
    "in the garden",
    "behind the red door",
    "next to the big rock",
]
WEATHER = [
    "It was a warm and sunny day.",
    "The sky was blue and the birds were singing.",
    "A soft wind moved through the leaves.",
    "It was a cold morning and the grass was white with frost.",
    "Small clouds moved slowly across the sky.",
    "The sun was just coming up.",
    "It was a quiet afternoon.",
    "The air smelled of flowers.",
]
FEEL_GOOD = ["very happy", "so proud", "full of joy", "warm inside", "happy and calm", "glad"]
FEEL_BAD = ["very sad", "worried", "upset", "a little scared", "tired and sad", "lonely"]
CHILD = {"she": "girl", "he": "boy"}
"""A hero that is no animal."""
MORALS = {
    "lost": [
        "Things are easier to find with a friend.",
        "A friend who helps you look is worth more than the thing you lost.",
        "Never give up too soon.",
    ],
    "share": [
        "When you share, there is always enough.",
        "A kind heart is never hungry for long.",
        "Good things come back to those who give.",
    ],
    "storm": [
        "Working together makes every house strong.",
        "After the rain there is always some sun.",
        "A storm is smaller when you are not alone.",
    ],
    "fear": [
        "Being brave means trying even when you are scared.",
        "Big steps are made of small steps.",
        "Everyone is afraid of something.",
    ],
    "race": [
        "Slow and steady can win the day.",
        "It is better to be kind than to be first.",
        "Boasting does not make you faster.",
    ],
    "make": [
        "The best things are made together.",
        "A little help makes a big difference.",
        "Good work takes time.",
    ],
    "help": [
        "No one is too small to help.",
        "A small act of kindness can start a big friendship.",
        "Help comes back when you need it.",
    ],
    "seek": [
        "The best treasure is one you can share.",
        "The journey was the real treasure.",
        "Friends are better than gold.",
    ],
    "grow": [
        "Good things need time to grow.",
        "Be patient, and look again tomorrow.",
        "Every day of care makes a difference.",
    ],
    "sorry": [
        "It is always better to tell the truth.",
        "Saying sorry takes courage.",
        "A mistake can be mended when we are honest.",
    ],
}
"""Last sentences of a story, by plot."""
PRONOUNS = {"she": ("she", "her", "her", "She", "Her"), "he": ("he", "him", "his", "He", "His")}
"""Forms of a pronoun: subject, object, possessive; then subject and possessive capitalised."""
TOPICS = {
    "share": "sharing",
    "storm": "a storm",
    "fear": "being brave",
    "race": "a race",
    "help": "helping a friend",
    "seek": "a treasure map",
    "grow": "a seed",
    "sorry": "saying sorry",
    "make": "making something together",
}
"""How a request names a plot."""
