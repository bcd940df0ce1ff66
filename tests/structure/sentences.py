"""Checks that no sentence of the documents has more than 48 words.

A sentence ends at a full stop, a question mark, an exclamation mark, a colon at the
end of a line, and with its paragraph, list item, table cell or headline. Code blocks are no text.
"""

import re

import source_tree

MOST_WORDS = 48
CODE_BLOCK = {False: re.compile(r"^(?: {4}|\t)"), True: re.compile(r"^ {6}")}  # in an item?
ITEM = re.compile(r"^\s*(?:[*+-]|\d+\.)\s+")
HEADLINE = re.compile(r"^#+\s")
TABLE_RULE = re.compile(r"^\s*\|[\s|:-]+$")
# The mark may be followed by what closes a bracket, a quotation or an emphasis.
END = re.compile(r"""(?:[.!?][)"'*_]*|:[*_]*(?=\n))(?=\s)""")
WORD = re.compile(r"\w")


def blocks(text):
    """(first line, text) of each paragraph, list item, table cell and headline."""
    block, first, in_item, in_fence, was_blank = [], 0, False, False, True
    for number, line in enumerate([*text.split("\n"), ""], 1):
        fence = line.lstrip().startswith("```")
        in_fence ^= fence
        indented = was_blank and CODE_BLOCK[in_item].match(line) and not ITEM.match(line)
        code = fence or in_fence or indented
        cells = line.strip().startswith("|") and not code
        starts = code or cells or not line.strip() or ITEM.match(line) or HEADLINE.match(line)
        if starts and block:
            yield first, "\n".join(block)
            block = []
        if cells:
            if not TABLE_RULE.match(line):
                for cell in line.strip().strip("|").split("|"):
                    yield number, cell
        elif line.strip() and not code:
            if ITEM.match(line):
                in_item = True
            elif was_blank and not line.startswith(" "):
                in_item = False
            first = first if block else number
            block.append(ITEM.sub("", line))
            if HEADLINE.match(line):
                yield first, block.pop()
        was_blank = not line.strip() or bool(code and was_blank)


def sentences(text):
    """(line, words) of each sentence."""
    for first, block in blocks(text):
        start = 0
        for end in [*(match.end() for match in END.finditer(block + "\n")), len(block)]:
            sentence = block[start:end]
            words = [word for word in sentence.split() if WORD.search(word)]
            if words:
                lead = len(sentence) - len(sentence.lstrip())
                yield first + block.count("\n", 0, start + lead), words
            start = end


def check(root):
    findings = []
    for path in source_tree.files(root, ".md"):
        for line, words in sentences(source_tree.read(root, path)):
            if len(words) > MOST_WORDS:
                findings.append(f"{path}:{line}: a sentence of {len(words)} words, more than"
                                f" {MOST_WORDS}: split it (\"{' '.join(words[:6])} ...\")")
    return findings
