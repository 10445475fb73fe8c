// Draws the API's description. The page is protected like every other, so the browser's session signs the requests.
"use strict";

window.SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // no request leaves the host
  defaultModelsExpandDepth: 0,
  requestInterceptor: (request) => {
    request.headers["x-csrf-token"] = document.body.dataset.csrf || "";
    return request;
  },
});
