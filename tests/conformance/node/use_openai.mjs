// openai for Node: chat, streams, the tool runner, typed answers, errors, retries.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { PERSON, WEATHER, apiKey, baseURL, model, tell } from "./telling.mjs";

const client = (options = {}) => new OpenAI({ baseURL, apiKey, ...options });
const said = (content) => [{ role: "user", content }];

const told = ({ choices: [choice], usage }) => ({
  text: choice.message.content,
  finish: choice.finish_reason,
  prompt: usage.prompt_tokens,
  completion: usage.completion_tokens,
});

async function chat(text = "Say hello.", options = {}, settings = {}) {
  const body = { model, messages: said(text), max_tokens: 40, temperature: 0, ...options };
  return told(await client(settings).chat.completions.create(body));
}

async function stream() {
  const body = { model, messages: said("Say hello."), max_tokens: 40, temperature: 0, stream_options: { include_usage: true } };
  const running = client().chat.completions.stream(body);
  let pieces = 0;
  running.on("content", (delta) => (pieces += delta ? 1 : 0));
  return { ...told(await running.finalChatCompletion()), pieces };
}

async function tools(stream = false) {
  const called = [];
  const getWeather = {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather in a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      parse: JSON.parse,
      function: (args) => {
        called.push(["get_weather", args]);
        return `21 degrees in ${args.city}`;
      },
    },
  };
  const runner = client().chat.completions.runTools({ model, messages: said(WEATHER), tools: [getWeather], stream });
  return { text: await runner.finalContent(), called };
}

async function structured() {
  const Person = z.object({ name: z.string(), born: z.number().int() });
  const body = { model, messages: said(PERSON), response_format: zodResponseFormat(Person, "person") };
  return (await client().chat.completions.parse(body)).choices[0].message.parsed;
}

async function speak(stream = false) {
  const audio = { voice: "ethan", format: "pcm16" };
  const body = { model, messages: said("Say hello."), max_tokens: 40, modalities: ["text", "audio"], audio };
  const { chat } = client();
  const { choices, usage } = stream
    ? await chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion()
    : await chat.completions.create(body);
  const [{ message, finish_reason: finish }] = choices;
  return { content: message.content, finish, tokens: usage.completion_tokens_details.audio_tokens, ...message.audio };
}

async function models() {
  const ids = [];
  for await (const found of client().models.list()) ids.push(found.id);
  return { ids, one: (await client().models.retrieve(model)).id };
}

await tell({
  chat,
  stream,
  tools,
  stream_tools: () => tools(true),
  structured,
  models,
  speak,
  stream_speak: () => speak(true),
  unknown_model: () => chat("Say hello.", { model: "nope" }),
  wrong_key: () => chat("Say hello.", {}, { apiKey: "wrong" }),
  bad_request: () => chat("Bad.", { temperature: -9 }),
  busy_429: () => chat("Busy 429."),
  busy_503: () => chat("Busy 503."),
});
