"use strict";

/* Which turns the model is shown. Where the context is full the oldest are dropped, as by
   `akunu chat`. */

/* An eighth of the context is reserved for a reply before turns are dropped. At most half of it is
   left filled then: all that is left is read again. */
const REPLY_SHARE = 8;
const KEPT_SHARE = 2;

/* Returns the messages of a request for a reply: `said` with those of the exchanges before that fit. */
async function fitting(exchange, earlier, said, mostTokens = Infinity, signal = null) {
  const { id, context } = model;
  const [before, system] = [earlier.at(-1), systemMessage()];
  const seen = (gone) => [...earlier.slice(gone).flatMap((one) => one.messages), ...said];
  const begin = before?.origin?.model === id ? before.forgotten : 0;
  const room = Math.max(1, Math.min(Math.floor(context / REPLY_SHARE), mostTokens));
  const size = (gone) => countTokens(seen(gone), system[0]?.content, signal);
  const first = async (most) => {
    let [low, high] = [begin, earlier.length + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((await size(middle)) <= most) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  let gone = begin;
  // No token has less than a byte, so most messages need no count.
  const used = before?.prompt.total ? before.prompt.total + before.counts.tokens : Infinity;
  const bytes = new TextEncoder().encode(JSON.stringify([system, said])).length;
  if (context && before && used + bytes + room > context && (await size(begin)) + room > context) {
    gone = await first(Math.floor(context / KEPT_SHARE));
    // The last turn is dropped only if the message does not fit otherwise.
    if (gone >= earlier.length) gone = Math.min(await first(context - room), earlier.length);
  }
  exchange.dropped = Math.max(0, gone - (before?.forgotten ?? 0));
  exchange.forgotten = gone;
  return [...system, ...seen(gone)];
}

/* Returns how many tokens messages take; Infinity where they do not fit, which the server may not count. */
async function countTokens(messages, system = "", signal = null) {
  // Thoughts of earlier turns are left out by templates, and white space at the end counts nothing.
  const plain = messages.map(({ role, content }) => ({ role, content: content.trimEnd() }));
  try {
    const response = await post("/v1/messages/count_tokens", { model: model.id, messages: plain, ...(system && { system }) }, signal);
    return (await response.json()).input_tokens;
  } catch (error) {
    if (error.code === TOO_LONG) return Infinity;
    throw error;
  }
}
