// The AI SDK with @ai-sdk/openai-compatible: text, streams, tools in steps, typed answers, errors, retries.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { PERSON, WEATHER, apiKey, baseURL, model, tell } from "./telling.mjs";

const server = (settings = {}) =>
  createOpenAICompatible({
    name: "duet",
    baseURL,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
    ...settings,
  });
const chatModel = server()(model);

const told = (text, finish, usage) => ({ text, finish, prompt: usage.inputTokens, completion: usage.outputTokens });

async function chat(prompt = "Say hello.", options = {}) {
  const answer = await generateText({ model: chatModel, prompt, maxOutputTokens: 40, temperature: 0, ...options });
  return told(answer.text, answer.finishReason, answer.usage);
}

async function stream() {
  const answer = streamText({ model: chatModel, prompt: "Say hello.", maxOutputTokens: 40, temperature: 0 });
  let pieces = 0;
  for await (const piece of answer.textStream) if (piece) pieces++;
  return { ...told(await answer.text, await answer.finishReason, await answer.usage), pieces };
}

async function tools(ask = generateText) {
  const called = [];
  const get_weather = tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async (args) => {
      called.push(["get_weather", args]);
      return `21 degrees in ${args.city}`;
    },
  });
  const answer = await ask({ model: chatModel, prompt: WEATHER, tools: { get_weather }, stopWhen: stepCountIs(3) });
  return { text: await answer.text, called };
}

async function structured() {
  const schema = z.object({ name: z.string(), born: z.number().int() });
  return (await generateText({ model: chatModel, prompt: PERSON, output: Output.object({ schema }) })).output;
}

await tell({
  chat,
  stream,
  tools,
  stream_tools: () =>
    tools(async (options) => {
      const answer = streamText(options);
      await answer.consumeStream();
      return answer;
    }),
  structured,
  unknown_model: () => chat("Say hello.", { model: server()("nope") }),
  wrong_key: () => chat("Say hello.", { model: server({ apiKey: "wrong" })(model) }),
  bad_request: () => chat("Bad.", { temperature: -9 }),
  busy_429: () => chat("Busy 429."),
  busy_503: () => chat("Busy 503."),
});
