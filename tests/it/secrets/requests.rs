//! Requests to every path of the proxy.

use super::*;

/// One request of each kind, and each kind of failure.
pub(super) fn requests(client: &TestClient, markers: &Markers) -> Vec<Request<TestUpload>> {
    let prompt = &markers.prompt;
    let key = format!("Bearer {}", markers.client_key);
    let mut all = Vec::new();
    let mut ask = |method: Method, path: &str, headers: &[(&str, &str)], body: &str| {
        let mut request = client.request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        all.push(request.body(full_body(body.to_owned())).unwrap());
    };
    let json = ("content-type", "application/json");
    let keyed = ("authorization", key.as_str());
    let chat = |model: &str, more: &str| {
        format!(
            r#"{{"model":"{model}",{more}"messages":[{{"role":"system","content":"{prompt}"}},{{"role":"user","content":"{prompt}"}}]}}"#
        )
    };
    let path = "/v1/chat/completions";
    for want in [
        "", "stream", "cut", "401", "404", "429", "400", "500", "garbage", "none",
    ] {
        for more in ["", "\"stream\":true,"] {
            let headers = [keyed, json, ("x-want", want)];
            ask(Method::POST, path, &headers, &chat("up/m", more));
        }
    }
    for model in ["gone/m", "tls/m", "simulated/plimsoll-8k"] {
        ask(Method::POST, path, &[keyed, json], &chat(model, ""));
    }
    let result = format!("{prompt} ").repeat(2_000);
    let long = format!(
        r#"{{"model":"up/small","messages":[{{"role":"user","content":"{prompt}"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"c","content":"{result}"}}]}}"#
    );
    ask(Method::POST, path, &[keyed, json], &long);
    ask(
        Method::POST,
        path,
        &[keyed, json],
        &format!("{{\"messages\": {prompt}"),
    );
    ask(
        Method::POST,
        path,
        &[keyed, json],
        &format!("{{\"messages\": 7, \"x\":\"{prompt}\"}}"),
    );
    ask(Method::POST, path, &[keyed, json], &result.repeat(10));
    ask(
        Method::POST,
        path,
        &[keyed, json, ("content-encoding", "gzip")],
        prompt,
    );
    let wrong = format!("Bearer {}", markers.wrong_key);
    for headers in [
        vec![json],
        vec![json, ("authorization", &wrong)],
        vec![json, ("api-key", &markers.wrong_key)],
        vec![json, ("api-key", &markers.client_key)],
        vec![json, ("x-api-key", &markers.client_key), ("cookie", &wrong)],
    ] {
        ask(Method::POST, path, &headers, &chat("up/m", ""));
    }
    let vectors = format!(r#"{{"model":"up/m","input":"{prompt}"}}"#);
    for want in ["", "401", "500", "none"] {
        ask(
            Method::POST,
            "/v1/embeddings",
            &[keyed, json, ("x-want", want)],
            &vectors,
        );
    }
    ask(
        Method::POST,
        "/gone/v1/embeddings",
        &[keyed, json],
        &vectors,
    );
    ask(Method::POST, "/v1/responses", &[keyed, json], &vectors);
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nup/m\r\n\
         --b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n{prompt}\r\n--b--\r\n"
    );
    let kind = ("content-type", "multipart/form-data; boundary=b");
    ask(
        Method::POST,
        "/v1/audio/transcriptions",
        &[keyed, kind],
        &form,
    );
    ask(
        Method::POST,
        "/v1/files",
        &[keyed, ("content-type", "text/plain")],
        prompt,
    );
    let query = format!("/v1/files?api-key={}&x=1", markers.client_key);
    ask(Method::GET, &query, &[keyed], "");
    for path in [
        "/v1/models",
        "/v1/models/up/m",
        "/nobody/v1/models",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/../x",
    ] {
        ask(Method::GET, path, &[keyed], "");
    }
    let admin = format!("Bearer {}", markers.admin_key);
    for key in [&admin, &key, &wrong] {
        let path = "/plimsoll/api/sessions/0123456789abcdef0123456789abcdef";
        ask(Method::GET, path, &[("authorization", key)], "");
    }
    all
}
