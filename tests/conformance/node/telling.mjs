// How a client's script tells what it saw: clients/telling.py says the form.
//
//     node use_….mjs BASE_URL API_KEY MODEL THING…

export const [baseURL, apiKey, model, ...wanted] = process.argv.slice(2);
export const WEATHER = "What is the weather in Paris?";
export const PERSON = "Who is Ada?";

export async function tell(things) {
  const told = {};
  for (const name of wanted) {
    try {
      told[name] = { saw: await things[name]() };
    } catch (error) {
      const status = error.status ?? error.statusCode ?? error.lastError?.statusCode ?? null;
      told[name] = { raised: { is: error.constructor.name, status, message: error.message } };
    }
  }
  console.log(JSON.stringify(told));
}
