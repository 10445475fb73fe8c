// Draws the API's description. The page is protected like every other, so the browser's session signs the requests.
"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches); // the class Swagger UI styles
dark.addEventListener("change", follow);
follow();

window.SwaggerUIBundle({
  url: `${document.documentElement.dataset.path}/openapi.json`,
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // no request leaves the host
  defaultModelsExpandDepth: 0,
  requestInterceptor: (request) => {
    request.headers["x-csrf-token"] = document.querySelector("meta[name=csrf]").content;
    return request;
  },
});
