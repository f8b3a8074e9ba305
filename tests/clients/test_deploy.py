"""The files in deploy/: the proxy with its neighbours in containers, alerts, the dashboard of Grafana."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
from contextlib import contextmanager

import pytest
import yaml

from harness import PATIENCE, Scripted, binary, fetch, free_port, serving, wait_until
from prometheus import DEPLOY, prometheus
from traffic import configuration, make_traffic, post

ROOT = DEPLOY.parent
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
RULES = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DEPLOY / "grafana/plimsoll.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What make-keys writes, from the folder of compose.yaml.
KEYS = {"keys/plimsoll.env", "keys/grafana.env", "keys/prometheus.key"}

# Nothing fails in the store, and nothing runs any more when the run is looked at.
STAY_AT_ZERO = {"Errors of the store", "Running requests", "Bodies in memory"}


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Containers.

@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """A copy of deploy/ with keys, and the keys of a client and of the administrator."""
    folder = shutil.copytree(DEPLOY, tmp_path_factory.mktemp("deployed"), dirs_exist_ok=True,
                             ignore=shutil.ignore_patterns("keys"))
    said = run("./make-keys", cwd=folder, env={**os.environ, "OPENAI_API_KEY": "a-key"})
    client, admin = re.findall(r"\b[0-9a-f]{48}\b", said)
    return folder, client, admin


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_do_little(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert int(service["user"].split(":")[0]) > 0
    assert re.search(r":v?\d+\.\d+", service["image"]), "a version"
    assert service["healthcheck"]["test"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for volume in service["volumes"]:
        source, _, mode = volume.partition(":")
        if source.startswith("./"):
            assert mode.endswith(":ro")
            assert source[2:] in KEYS or (DEPLOY / source).exists(), source
        else:
            assert source in COMPOSE["volumes"]


def test_the_proxy_is_that_of_the_image():
    service = SERVICES["plimsoll"]
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert service["image"] == f"${{PLIMSOLL_IMAGE:-plimsoll:{version}}}"
    image = (ROOT / "packaging/image/Containerfile").read_text()
    assert f"USER {service['user']}\n" in image
    assert f"CMD {json.dumps(service['healthcheck']['test'][1:])}\n" in image
    # Longer than answers may take to end; see docs/operations/deploy.md.
    drain_ms = int(re.search(r"drain_timeout_ms = (\d+)", (ROOT / "config.toml").read_text())[1])
    delay_ms = service["environment"]["PLIMSOLL_SERVER__DRAIN_DELAY_MS"]
    assert f"PLIMSOLL_SERVER__DRAIN_DELAY_MS={delay_ms}\n" in image
    assert int(service["stop_grace_period"].removesuffix("s")) * 1000 >= int(delay_ms) + drain_ms + 10_000


def test_compose_takes_the_files(deployed):
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here")
    run("docker", "compose", "config", "--quiet", cwd=deployed[0])
    key = {**os.environ, "PLIMSOLL_KEY": "a-key"}
    run("docker", "compose", "config", "--quiet", cwd=deployed[0] / "open-webui", env=key)


def test_open_webui_is_beside_the_same_proxy(tmp_path):
    """Its container is no different, and its settings let in the key that the recipe makes, and no other."""
    compose = yaml.safe_load((DEPLOY / "open-webui/compose.yaml").read_text())
    service = compose["services"]["plimsoll"]
    same = ("image", "user", "read_only", "cap_drop", "security_opt", "healthcheck", "stop_grace_period")
    assert {name: service[name] for name in same} == {name: SERVICES["plimsoll"][name] for name in same}
    assert all(port.startswith("127.0.0.1:") for one in compose["services"].values() for port in one["ports"])
    settings = (DEPLOY / "open-webui/plimsoll/config.toml").read_text()
    (tmp_path / "config.toml").write_text(settings)
    made = run(binary(), "key", "open_webui", "--config", "config.toml", cwd=tmp_path)
    [key] = re.findall(r"\b[0-9a-f]{48}\b", made)
    with serving(settings + made[made.index("[clients"):]) as proxy:
        assert json.loads(fetch(f"{proxy}/plimsoll/api/sessions", key))["sessions"] == []
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(f"{proxy}/v1/models", "another")


def read_environment(file):
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@contextmanager
def valkey(folder):
    """A server with the arguments of the container; yields its port."""
    program, *arguments = SERVICES["valkey"]["command"]
    assert program == "valkey-server"
    port = str(free_port())
    check = [word.replace("valkey-cli", "redis-cli") for word in SERVICES["valkey"]["healthcheck"]["test"][1:]]
    with subprocess.Popen(["redis-server", *arguments, "--port", port, "--bind", "127.0.0.1",
                           "--dir", str(folder)], stdout=subprocess.DEVNULL) as server:
        try:
            check[1:1] = ["-p", port]
            wait_until(lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0, "it is healthy")
            yield port
        finally:
            server.kill()


def test_each_key_opens_what_it_is_for(deployed):
    folder, client, admin = deployed
    watcher = (folder / "keys/prometheus.key").read_text()
    keys = read_environment(folder / "keys/plimsoll.env")
    assert keys["OPENAI_API_KEY"] == "a-key"
    assert len(read_environment(folder / "keys/grafana.env")["GF_SECURITY_ADMIN_PASSWORD"]) >= 24
    assert not any(key in file.read_text() for key in (client, admin) for file in folder.rglob("*.*"))
    ask = {"model": "simulated/plimsoll-8k", "messages": [{"role": "user", "content": "Ahoy"}]}
    settings = (folder / "plimsoll/config.toml").read_text()
    with valkey(folder) as port:
        assert settings.count("redis://valkey:6379/0") == 1
        settings = settings.replace("redis://valkey:6379/0", f"redis://127.0.0.1:{port}/0")
        with serving(settings, keys) as proxy:
            run(binary(), "health", "--url", proxy)
            assert post(proxy, "chat/completions", ask, client)
            assert post(proxy, "chat/completions", ask, watcher) is None
            assert 'plimsoll_store_duration_seconds_count{operation="save"} 1' in fetch(f"{proxy}/metrics", watcher)
            sessions = f"{proxy}/plimsoll/api/sessions"
            # Prometheus has no session, and sees none of others.
            for key, count in {admin: 1, client: 1, watcher: 0}.items():
                assert len(json.loads(fetch(sessions, key))["sessions"]) == count
            with pytest.raises(urllib.error.HTTPError, match="401"):
                fetch(f"{proxy}/metrics")
            assert int(run("redis-cli", "-p", port, "dbsize")) > 0, "the store has the session"


def test_make_keys_adds_a_client(deployed):
    folder = deployed[0]
    file = folder / "keys/plimsoll.env"
    # As an editor may leave it.
    before = file.read_text().removesuffix("\n")
    file.write_text(before)
    [key] = re.findall(r"\b[0-9a-f]{48}\b", run("./make-keys", "team_2", cwd=folder))
    digest = hashlib.sha256(key.encode()).hexdigest()
    added = f"{before}\nPLIMSOLL_CLIENTS__TEAM_2__KEY_SHA256={digest}\n"
    assert file.read_text() == added
    for wrong in (["team_2"], ["first"], ["Team"], ["a-b"], ["a__b"], ["_a"], ["a_"], [""], ["a\nb"], ["a", "b"]):
        refused = subprocess.run(["./make-keys", *wrong], cwd=folder, capture_output=True, check=False)
        assert refused.returncode != 0 and refused.stderr, wrong
        assert not refused.stdout
    assert file.read_text() == added
    settings = (folder / "plimsoll/config.toml").read_text().replace("redis://valkey:6379/0", "memory")
    with serving(settings, read_environment(file)) as proxy:
        assert json.loads(fetch(f"{proxy}/plimsoll/api/sessions", key))["sessions"] == []


def test_keys_are_never_written_over(deployed):
    folder = deployed[0]
    before = (folder / "keys/plimsoll.env").read_text()
    again = subprocess.run(["./make-keys"], cwd=folder, capture_output=True, check=False)
    assert again.returncode != 0
    assert (folder / "keys/plimsoll.env").read_text() == before


# Prometheus and Grafana.

def test_the_page_shows_what_prometheus_reads():
    settings = (DEPLOY / "prometheus/prometheus.yml").read_text()
    page = (ROOT / "docs/operations/metrics.md").read_text()
    shown = re.search(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)[1]
    assert shown == settings[settings.index("scrape_configs:"):]


def test_prometheus_takes_its_files(deployed):
    folder = deployed[0]
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["prometheus"]["volumes"])
    [option] = [word for word in SERVICES["prometheus"]["command"] if word.startswith("--config.file=")]
    file = folder / option.removeprefix("--config.file=").replace("/etc/prometheus", "prometheus")
    assert mounted["./prometheus"] == "/etc/prometheus"
    key = mounted["./keys/prometheus.key"]
    settings = file.read_text()
    assert settings.count(key) == 1
    file.write_text(settings.replace(key, str(folder / "keys/prometheus.key")))
    told = run("promtool", "check", "config", str(file))
    assert f"{len(RULES)} rules found" in told


def test_every_alert_fires_when_it_should():
    tests = ROOT / "tests/clients/alerts.yml"
    run("promtool", "test", "rules", str(tests))
    expected = []
    for test in yaml.safe_load(tests.read_text())["tests"]:
        before, after = test["promql_expr_test"]
        [fires] = after["exp_samples"]
        assert before["exp_samples"] == []
        assert f'alertname="{test["name"]}"' in fires["labels"]
        expected.append(test["name"])
    assert expected == [rule["alert"] for rule in RULES]


def test_grafana_finds_its_files():
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    [provider] = yaml.safe_load((DEPLOY / "grafana/dashboards.yml").read_text())["providers"]
    dashboard = mounted["./grafana"] + "/plimsoll.json"
    assert dashboard.startswith(provider["options"]["path"])
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    [source] = yaml.safe_load((DEPLOY / "grafana/datasources.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    settings = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == settings["scrape_configs"][0]["scrape_interval"]


def test_panels_do_not_overlap():
    seen, cells = set(), set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        taken = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= taken
        seen.add(panel["id"])
    assert len(seen) == len(DASHBOARD["panels"])


@pytest.fixture(scope="module")
def watched():
    """A Prometheus that has seen two rounds of the same requests: rates need a count before and after."""
    provider = Scripted()
    config, environment = configuration(provider)
    with serving(config, environment) as proxy, prometheus(proxy) as server:
        for turn, word in enumerate(["one", "two"], 1):
            make_traffic(proxy, word)
            # A summary ends last, so that the scrape that has it has all.
            ended = f'sum(plimsoll_summaries_total{{outcome=~"made|rejected"}}) >= {turn}'
            wait_until(lambda query=ended: server.query(query), "the requests were scraped")
        fires = 'ALERTS{alertname="PlimsollProviderKeyRefused",alertstate="firing"}'

        def is_complete():
            # The tests look at one moment, whatever a later scrape finds; those before it have ended (scrape_timeout).
            server.time = time.time() - 1.1
            return server.query(ended) and server.query(fires)

        wait_until(is_complete, "an alert fires")
        yield server
    provider.stop()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_the_run(watched, panel):
    shown = []
    assert panel["targets"]
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "10m").replace("$instance", ".*").replace("$client", ".*")
        assert "$" not in query
        result = watched.query(query)
        assert result, query
        # Each label that the legend names is there.
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
            assert all(one["metric"].get(label) for one in result), label
        shown += [float(one["value"][1]) for one in result]
    # Not a number: a quantile of something that did not happen.
    assert any(value > 0 for value in shown) or panel["title"] in STAY_AT_ZERO


def test_the_dashboard_chooses_among_proxies(watched):
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in [*PANELS, variables["instance"]])
    query = variables["instance"]["query"]["query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
    assert [one["metric"][label] for one in watched.query(metric)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_reads_metrics_that_exist(watched, rule):
    selectors = re.findall(r"\b(\w+(?:\{[^}]*\})?)\[\d+[mh]\]|\b(up\{[^}]*\})", rule["expr"])
    assert selectors
    for selector in map("".join, selectors):
        # No request was turned away; then there is no such series.
        if rule["alert"] != "PlimsollOverloaded":
            assert watched.query(selector), selector
    [group] = watched.ask("rules")["groups"]
    [running] = [one for one in group["rules"] if one["name"] == rule["alert"]]
    assert running["health"] == "ok", running
