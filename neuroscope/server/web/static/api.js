// Requests to the two ports, with the key when one is set. The key stays in this tab (sessionStorage).

const KEY = "neuroscope-key";

export const FEATURES = location.origin;
export const CHAT = `${location.protocol}//${location.hostname}:${document.documentElement.dataset.chatPort}`;

// What the server said: `message` for people, with the HTTP `status`, the error's `code`, and seconds to wait.
export class ServerError extends Error {
  constructor(message, status, code = null, retryAfter = null) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }
}

let asking = null;

export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setKey(value) {
  sessionStorage.setItem(KEY, value);
}

// `ask` returns a promise of whether there is a new key; `shell.js` gives the dialog.
export function whenKeyIsAsked(ask) {
  asking = ask;
}

// A response that went well; ServerError else. Asks once for a key where the server wants one.
export async function request(url, { method = "GET", body, signal, headers = {} } = {}) {
  for (let attempt = 0; ; attempt += 1) {
    const sent = { ...headers };
    if (key()) sent.Authorization = `Bearer ${key()}`;
    if (body !== undefined) sent["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(url, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(`No answer from ${new URL(url, location.href).host}. Is the server running?`, 0);
    }
    if (response.ok) return response;
    const problem = await errorOf(response);
    if (problem.code === "invalid_api_key" && asking && attempt < 3 && (await asking(attempt > 0))) continue;
    throw problem;
  }
}

export async function getJson(path, query = {}, options = {}) {
  const words = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== null && v !== undefined && v !== ""));
  const text = String(words);
  return (await request(`${FEATURES}${path}${text && `?${text}`}`, options)).json();
}

export async function postJson(path, body, options = {}) {
  return (await request(`${FEATURES}${path}`, { ...options, method: "POST", body })).json();
}

async function errorOf(response) {
  let error = {};
  try {
    ({ error } = await response.json());
  } catch {
    // a proxy's page, or nothing
  }
  const wait = Number(response.headers.get("Retry-After"));
  return new ServerError(error?.message ?? `The server answered ${response.status}.`, response.status, error?.code, wait || null);
}
