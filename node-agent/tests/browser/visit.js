"use strict";
window.addEventListener("load", () => setTimeout(() => {
  const seen = { errors: [] };
  const all = () => [...document.querySelectorAll("#frames > g")];
  const of = (name) => all().find((one) => one.querySelector("title").textContent.startsWith(name + " ("));
  const rect = (name) => of(name).querySelector("rect");
  const width = (name) => rect(name).getAttribute("width");
  const isHidden = (name) => getComputedStyle(of(name)).display === "none";
  const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
  const field = document.getElementById("seek");
  const pattern = "^" + FUNCTION.replace(/[\[\]]/g, "\\$&") + " \\(";
  window.addEventListener("error", (event) => seen.errors.push(event.message));
  // What a person would type when a drawing asks.
  window.prompt = () => pattern;
  try {
    seen.width = width(FUNCTION);
    const seek = (text) => {
      field.value = text;
      click(document.querySelector("form button"));
      return document.getElementById("found").textContent;
    };
    const before = rect(FUNCTION).getAttribute("fill");
    if (field) seen.found = seek(pattern);
    else click(document.getElementById("search"));
    seen.matched = document.getElementById("matched").textContent;
    seen.marked = rect(FUNCTION).getAttribute("fill");
    if (field) {
      seen.nothing = seek("no such function");
      seen.wrong = seek("(");
      const row = [...document.querySelectorAll("td button")].find((one) => one.textContent === FUNCTION);
      if (row) {
        click(row);
        seen.clicked = document.getElementById("found").textContent;
      }
      seek("");
    } else click(document.getElementById("search"));
    seen.unmarked = rect(FUNCTION).getAttribute("fill") === before;
    click(rect(FUNCTION));
    seen.zoomed = width(FUNCTION);
    seen.hidden = isHidden(ELSEWHERE);
    click(document.getElementById("unzoom"));
    seen.whole = width(FUNCTION);
    seen.shown = !isHidden(ELSEWHERE);
  } catch (error) {
    seen.errors.push(String(error));
  }
  document.getElementById("details").textContent = "REPORT" + JSON.stringify(seen) + "END";
}, 200));
