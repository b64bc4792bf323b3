"""What the model is taught to know: small facts, the course's own words, and who it is."""

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Portugal": "Lisbon",
    "Poland": "Warsaw",
    "Austria": "Vienna",
    "Greece": "Athens",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Ireland": "Dublin",
    "England": "London",
    "Scotland": "Edinburgh",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Brazil": "Brasilia",
    "Chile": "Santiago",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Turkey": "Ankara",
    "Hungary": "Budapest",
    "Belgium": "Brussels",
    "Australia": "Canberra",
    "Russia": "Moscow",
    "Ukraine": "Kyiv",
    "Iceland": "Reykjavik",
    "Switzerland": "Bern",
    "Vietnam": "Hanoi",
    "Thailand": "Bangkok",
    "Argentina": "Buenos Aires",
    "Morocco": "Rabat",
    "Nigeria": "Abuja",
    "South Korea": "Seoul",
}
SOUNDS = {
    "cat": "meow",
    "dog": "woof",
    "cow": "moo",
    "sheep": "baa",
    "duck": "quack",
    "pig": "oink",
    "horse": "neigh",
    "lion": "roar",
    "owl": "hoot",
    "bee": "buzz",
    "snake": "hiss",
    "frog": "croak",
    "mouse": "squeak",
    "rooster": "crow",
    "wolf": "howl",
}
YOUNG = {
    "cat": "kitten",
    "dog": "puppy",
    "cow": "calf",
    "sheep": "lamb",
    "duck": "duckling",
    "pig": "piglet",
    "horse": "foal",
    "lion": "cub",
    "bear": "cub",
    "goat": "kid",
    "deer": "fawn",
    "hen": "chick",
    "frog": "tadpole",
    "swan": "cygnet",
    "kangaroo": "joey",
}
OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "up": "down",
    "day": "night",
    "fast": "slow",
    "happy": "sad",
    "young": "old",
    "open": "closed",
    "wet": "dry",
    "light": "dark",
    "hard": "soft",
    "full": "empty",
    "early": "late",
    "high": "low",
    "long": "short",
    "near": "far",
    "loud": "quiet",
    "rich": "poor",
    "left": "right",
    "inside": "outside",
    "first": "last",
    "strong": "weak",
    "clean": "dirty",
    "easy": "difficult",
    "thick": "thin",
    "wide": "narrow",
    "win": "lose",
    "push": "pull",
    "true": "false",
    "sweet": "sour",
}
HUES = {
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "a banana": "yellow",
    "a strawberry": "red",
    "a carrot": "orange",
    "coal": "black",
    "chocolate": "brown",
    "a lemon": "yellow",
    "a tomato": "red",
    "milk": "white",
    "a leaf": "green",
    "the sun": "yellow",
    "a plum": "purple",
    "a flamingo": "pink",
    "an elephant": "gray",
    "gold": "yellow",
    "a frog": "green",
    "a pumpkin": "orange",
    "the night": "black",
}
USES = {
    "a pen": "write",
    "a knife": "cut",
    "a bed": "sleep",
    "a cup": "drink",
    "a broom": "sweep the floor",
    "a key": "open a door",
    "a lamp": "see in the dark",
    "a clock": "tell the time",
    "an umbrella": "stay dry in the rain",
    "a spoon": "eat soup",
    "a needle": "sew",
    "a ladder": "climb up high",
    "a boat": "cross the water",
    "a brush": "paint",
    "a phone": "talk to people far away",
    "a book": "read",
    "a map": "find the way",
    "a hammer": "hit nails",
}
LISTS = {
    "fruits": ["apples", "pears", "plums", "cherries", "grapes", "lemons", "peaches", "bananas"],
    "animals": ["cats", "dogs", "horses", "foxes", "owls", "bears", "rabbits", "frogs"],
    "colors": ["red", "blue", "green", "yellow", "purple", "orange", "white", "black"],
    "vegetables": [
        "carrots",
        "potatoes",
        "onions",
        "peas",
        "beans",
        "cabbages",
        "leeks",
        "pumpkins",
    ],
    "birds": ["owls", "robins", "ducks", "swans", "eagles", "crows", "sparrows", "gulls"],
    "trees": ["oaks", "pines", "birches", "willows", "maples", "elms", "ashes", "cedars"],
    "instruments": [
        "drums",
        "flutes",
        "violins",
        "pianos",
        "harps",
        "horns",
        "guitars",
        "trumpets",
    ],
    "jobs": ["baker", "farmer", "teacher", "doctor", "painter", "sailor", "cook", "pilot"],
}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
GLOSSARY = {
    "a token": "A token is a small piece of text, often a word or a part of a word. A language "
    "model reads tokens and writes tokens, one after another.",
    "a tokenizer": "A tokenizer cuts text into tokens and gives every token a number. It can also "
    "turn the numbers back into text.",
    "a language model": "A language model reads some tokens and guesses which token comes next. "
    "By doing this again and again, it writes text.",
    "prefill": "Prefill is the first step of an answer. The model reads the whole prompt at once "
    "and stores its keys and values in the KV cache.",
    "decode": "Decode is the step that makes one new token. It reads all weights for only one "
    "token, so it is limited by memory and not by math.",
    "a KV cache": "A KV cache stores the keys and values of all tokens that the model has seen. "
    "Because of it, each new token needs only a little work.",
    "attention": "Attention lets each token look at the tokens before it. It compares a query "
    "with all keys and then mixes the values.",
    "a query": "A query is a vector that says what a token is looking for. It is compared with "
    "the keys of all earlier tokens.",
    "PagedAttention": "PagedAttention keeps the KV cache in small blocks, like pages of memory. A "
    "block table says where each block is, so almost no memory is wasted.",
    "a block table": "A block table is a list that tells which block of memory holds which part "
    "of a sequence. Each sequence has its own block table.",
    "a block": "A block is a small piece of the KV cache that holds a fixed number of tokens, for "
    "example sixteen.",
    "fragmentation": "Fragmentation is memory that is free but cannot be used, because it lies in "
    "small gaps or was reserved and never filled.",
    "static batching": "In static batching, a batch starts together and ends together. Short "
    "answers must wait for the longest one, so many slots stay empty.",
    "continuous batching": "In continuous batching, a finished sequence leaves the batch at once "
    "and a waiting one takes its place. The slots stay full.",
    "a batch": "A batch is a group of sequences that the model works on at the same time. The "
    "weights are read once for all of them.",
    "a scheduler": "A scheduler decides at every step which sequences run and which ones wait. It "
    "looks at the free blocks and at the token budget.",
    "preemption": "Preemption means that a running sequence has to give back its blocks and wait. "
    "Later its tokens are computed again.",
    "latency": "Latency is the time that one request has to wait. The time to the first token and "
    "the time between tokens are both important.",
    "throughput": "Throughput is the number of tokens that the whole system makes in one second.",
    "a GPU kernel": "A GPU kernel is a small program that runs on many threads of a graphics card "
    "at the same time.",
    "a warp": "A warp is a group of thirty-two threads on a GPU that run the same step together.",
    "shared memory": "Shared memory is a small and fast memory on the GPU. All threads of one "
    "block can read it and write it.",
    "RoPE": "RoPE turns each query and key by an angle that depends on its position. In this way "
    "the model knows how far apart two tokens are.",
    "RMSNorm": "RMSNorm divides a vector by its root mean square and then scales it with learned "
    "weights. It keeps the numbers in a good range.",
    "SwiGLU": "SwiGLU is the feed forward part of a Llama layer. One projection is passed through "
    "SiLU and multiplied with a second one, and a third one brings it back.",
    "grouped query attention": "In grouped query attention, several query heads share one key and "
    "value head. This makes the KV cache smaller.",
    "softmax": "Softmax turns a list of scores into numbers between zero and one that add up to "
    "one.",
    "temperature": "Temperature makes the choice of the next token more or less random. At zero, "
    "the model always takes the best token.",
    "greedy decoding": "Greedy decoding always takes the token with the highest score. The same "
    "prompt gives the same answer every time.",
    "a logit": "A logit is the score that the model gives to one token before softmax.",
    "safetensors": "Safetensors is a file format for weights. It has a small header in JSON, "
    "followed by the raw numbers, so that it can be read without copying.",
    "bfloat16": "Bfloat16 is a number format with sixteen bits. It has the range of a float with "
    "thirty-two bits, but fewer digits.",
    "a stop token": "A stop token tells the engine that the answer is complete. In Llama chat "
    "models it is called the end of turn token.",
    "a timeout": "A timeout is a limit on how long a request may take. When it is over, the "
    "request is cancelled and its blocks are freed.",
    "cancellation": "Cancellation stops a request before it is finished. The engine must free its "
    "slot and its blocks at once.",
    "prefix caching": "Prefix caching keeps the blocks of a prompt that many requests share. The "
    "next request with the same start does not need to compute them again.",
    "a page": "A page is a piece of memory with a fixed size. Programs see one long row of "
    "memory, and a table says where the pages really are.",
    "memory bandwidth": "Memory bandwidth says how many bytes can be read in one second. In "
    "decode, it decides how fast the model can write.",
    "vLLM": "vLLM is an engine that serves language models. It became known for PagedAttention "
    "and continuous batching.",
    "a weight": "A weight is a number that the model has learned. A small Llama has about one "
    "billion of them. I have only a few million.",
}
"""The words of the course, each in a sentence or two."""
SMALL_TALK = [
    (
        "Who are you?",
        "I am a tiny Llama model. I was made for a course about how language models run. I know "
        "small stories and a few facts.",
    ),
    ("What is your name?", "My name is Tiny Llama."),
    (
        "What can you do?",
        "I can tell small stories, count, add small numbers, and explain words about language "
        "models.",
    ),
    (
        "How big are you?",
        "I am very small. I have only a few million weights, so I make many mistakes.",
    ),
    ("Hello!", "Hello! How can I help you today?"),
    ("Hi", "Hi! How can I help you?"),
    ("Good morning!", "Good morning! What would you like to hear?"),
    ("Thank you!", "You are welcome!"),
    ("Thanks.", "You are welcome!"),
    ("Goodbye!", "Goodbye! Have a nice day."),
    ("How are you?", "I am fine, thank you. How can I help you?"),
    ("Are you a real llama?", "No, I am not a real llama. I am a small program that writes text."),
]
"""Question and answer."""
