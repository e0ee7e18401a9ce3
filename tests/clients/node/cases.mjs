// What the programs have in common: their arguments, the questions, and how the cases are printed.
export const [SCRIPTED, TINY, KEY] = process.argv.slice(2, 5);
export const MODEL = "scripted/model";
export const TINY_MODEL = "tiny";
export const WORDS = "one two three";
export const TOO_LONG = "word ".repeat(300);
export const LONG_ANSWER = "[delay=0.05] " + "w ".repeat(100);
export const LATE_FAILURE = "[fail=1] one two";
export const TOOL = {
  type: "function",
  function: { name: "look", description: "Looks.", parameters: { type: "object", properties: {} } },
};

export const user = (text) => [{ role: "user", content: text }];

export const middleOf = (text) => {
  const half = Math.floor(text.length / 2);
  return text.slice(half, half + 3);
};

// The error of `call`, or a failure of the program when none comes.
export async function errorOf(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error("no error came");
}

export async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

export const print = (said) => console.log(JSON.stringify(said));
