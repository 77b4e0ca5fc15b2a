// Asks before anything is changed.

const dialog = document.getElementById("confirm");
const title = document.getElementById("confirm-title");
const text = document.getElementById("confirm-text");
const yes = document.getElementById("confirm-yes");

/** Whether somebody said yes. Escape is a no, and so is the key that is pressed without looking: no has the focus. */
export function confirmed(question, explanation, answer) {
  title.textContent = question;
  text.textContent = explanation;
  yes.textContent = answer;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
