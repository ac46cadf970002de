"""A real Prometheus scrapes coordinator and agent and answers queries about a running job."""

import json
import subprocess
import urllib.parse
import urllib.request

from cluster import free_ports, wait_until


def query(port, expression):
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        return []  # Prometheus is still starting.


def test_prometheus_answers_for_a_running_job(cluster, job_file, tmp_path):
    (port,) = free_ports(1)
    config = tmp_path / "prometheus.yml"
    config.write_text(f"""
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: tundish
    static_configs:
      - targets: ["127.0.0.1:{cluster.http_port}", "127.0.0.1:{cluster.agent_http_port}"]
""")
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=open(tmp_path / "prometheus.log", "wb"))
    try:
        job = cluster.submit(job_file({"training.steps": 100000}))
        cluster.wait_for_step(job, 3)
        (series,) = wait_until(lambda: query(port, f'tundish_job_images_per_second{{job_id="{job}"}}'),
                               "Prometheus has images per second")
        assert float(series["value"][1]) > 0, series
        wait_until(lambda: len(query(port, "up == 1")) == 2, "both targets are up")
        (devices,) = query(port, 'sum(tundish_node_devices{state="used"})')
        assert float(devices["value"][1]) == 4
        workers = query(port, "tundish_agent_workers")
        assert sum(float(w["value"][1]) for w in workers) == 4, workers
        cluster.cli("cancel", job)
    finally:
        prometheus.terminate()
        prometheus.wait(30)


def test_pages(cluster):
    for path, words in (("/healthz", ""), ("/readyz", ""), ("/metrics", "tundish_"), ("/", "Tundish")):
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster.http_port}{path}", timeout=5) as page:
            assert page.status == 200 and words in page.read().decode()
