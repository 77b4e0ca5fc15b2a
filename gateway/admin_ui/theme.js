// Light, dark, or as the system has it.

const NAME = "duet-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

export function theme(button) {
  let chosen = localStorage.getItem(NAME);
  if (!(chosen in NEXT)) chosen = "system";
  apply();
  button.addEventListener("click", () => {
    chosen = NEXT[chosen];
    localStorage.setItem(NAME, chosen);
    apply();
  });

  function apply() {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.title = `Theme: ${chosen}`;
    button.setAttribute("aria-label", button.title);
  }
}
