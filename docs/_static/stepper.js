// Steps through recorded states: highlights and shows parts of the pictures of a stepper.
"use strict";

function makeStepper(root) {
  const steps = JSON.parse(root.querySelector("script").textContent);
  const text = root.querySelector(".stepper-text");
  const [first, back, next, last] = root.querySelectorAll("button");
  const part = (id) => root.querySelector(`[id="${id}"]`);
  const shown = steps.flatMap((step) => step.show);
  let now = 0;

  function update() {
    for (const old of root.querySelectorAll(".on")) old.classList.remove("on");
    for (const id of shown) part(id).classList.add("later");
    for (const step of steps.slice(0, now + 1))
      for (const id of step.show) part(id).classList.remove("later");
    for (const id of steps[now].on) part(id).classList.add("on");
    text.textContent = `${now + 1} of ${steps.length}: ${steps[now].text}`;
    first.disabled = back.disabled = now === 0;
    next.disabled = last.disabled = now === steps.length - 1;
  }

  function go(step) {
    now = Math.max(0, Math.min(steps.length - 1, step));
    update();
  }

  first.addEventListener("click", () => go(0));
  back.addEventListener("click", () => go(now - 1));
  next.addEventListener("click", () => go(now + 1));
  last.addEventListener("click", () => go(steps.length - 1));
  root.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") go(now + 1);
    else if (event.key === "ArrowLeft") go(now - 1);
    else return;
    event.preventDefault();
  });
  update();
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".stepper").forEach(makeStepper);
});
