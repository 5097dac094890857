"use strict";
// Saves the choice as a budgets file on this device. Nothing is sent; a portal can listen for "rpdp-choice".
const form = document.getElementById("consent"), person = document.getElementById("person");
const status = document.getElementById("status");
const given = new URLSearchParams(location.hash.slice(1)).get("person");
if (given) person.value = given;

// A spreadsheet would read some beginnings as a formula, and a budgets file takes no line breaks.
const isOdd = id => /^[=+\-@]/.test(id) || /[\u0000-\u001f\u007f]/.test(id);
const quoted = text => /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

function say(text, field) {
  status.textContent = text;
  person.toggleAttribute("aria-invalid", false);
  if (field === person) person.setAttribute("aria-invalid", "true");
  if (field) field.focus();
}

form.addEventListener("change", () => { status.textContent = ""; });
form.addEventListener("submit", event => {
  event.preventDefault();
  const chosen = form.querySelector("input[name=choice]:checked"), id = person.value.trim();
  if (!chosen) return say(form.dataset.missingChoice, form.querySelector("input[name=choice]"));
  if (!id) return say(form.dataset.missingPerson, person);
  if (isOdd(id)) return say(form.dataset.oddPerson, person);
  const { epsilon, delta, label } = chosen.dataset, { column, file } = form.dataset;
  const choice = { [column]: id, epsilon: Number(epsilon), delta: Number(delta), label };
  if (document.dispatchEvent(new CustomEvent("rpdp-choice", { detail: choice, cancelable: true }))) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${column},epsilon,delta\n${quoted(id)},${epsilon},${delta}\n`], { type: "text/csv" }));
    link.download = `${file}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }
  say(`${form.dataset.saved} ${label}`);
});
