// A streamed answer of the chat port.

import { CHAT, request, ServerError } from "./api.js";

// Yields the chunks of POST /v1/chat/completions as they come. Throws ServerError, also for an error mid-stream.
export async function* chat(body, signal) {
  const response = await request(`${CHAT}/v1/chat/completions`, { method: "POST", body: { ...body, stream: true }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true }; // each browser has words of its own for a connection that breaks
    });
    if (done) throw new ServerError("The answer was cut off: the connection to the server broke.", 0);
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (!block.startsWith("data: ")) continue; // a heartbeat
      const text = block.slice(6);
      if (text === "[DONE]") return;
      const chunk = JSON.parse(text);
      if (chunk.error) throw new ServerError(chunk.error.message, 0, chunk.error.code);
      yield chunk;
    }
  }
}
