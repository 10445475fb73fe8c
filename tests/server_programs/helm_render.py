"""Lint and render a chart by Helm's own code: JSON in, JSON out. Runs in the environment of the servers."""

import json
import sys
from typing import Any

import helm_python as helm

request: dict[str, Any] = json.load(sys.stdin)
findings = helm.lint(request["chart"])
answer: dict[str, Any] = {"lint": [one for one in findings["messages"] if one["severity"] > 1], "rendered": []}
with helm.Chart.load(request["chart"]) as chart:
    for values in request["values"]:
        try:
            chart.validate_schema(values)
            if "apiserver" in request:
                with helm.Config(
                    kube_apiserver=request["apiserver"], kubeconfig_content=request["kubeconfig"], namespace="coalmine"
                ) as config:
                    files = config.render(chart, values, name="coalmine", namespace="coalmine")
            else:
                files = chart.render(values, name=request.get("release", "coalmine"), namespace="coalmine")
        except helm.HelmError as error:
            answer["rendered"].append({"error": str(error)})
        else:
            answer["rendered"].append({"files": files})
json.dump(answer, sys.stdout)
