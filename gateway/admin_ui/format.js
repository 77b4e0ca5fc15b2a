// Figures as people read them.

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function rate(perSecond) {
  if (perSecond > 0 && perSecond < 0.1) return `${Math.max(1, Math.round(perSecond * 60))}/min`;
  return `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function clock(epoch) {
  return new Date(epoch * 1000).toLocaleTimeString([], { hour12: false });
}

export function moment(epoch) {
  return new Date(epoch * 1000).toLocaleString([], { hour12: false });
}

export function words(name) {
  return name.replaceAll("_", " ");
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

const TONES = { finished: "good", failed: "bad", expired: "bad", cancelled: "warn" };

export function toneOf(state) {
  return TONES[state] ?? "busy";
}
