use reqwest::Url;

use super::{Outgoing, ProxySetting, find_unusable_proxies};
use crate::config::{
    Environment,
    loading::{layer::Layers, section::Section},
    secret::Secret,
};

fn outgoing(variables: &[(&str, &str)]) -> Outgoing {
    let environment = Environment::from_iter(variables.iter().copied());
    Outgoing::read(&mut Section::new(&Layers::default(), &environment))
}

fn route(outgoing: &Outgoing, address: &str, has_credentials: bool) -> String {
    let address = Url::parse(address).unwrap();
    let route = outgoing.find_route(&address, has_credentials, &ProxySetting::Environment);
    route.describe()
}

#[test]
fn the_variables_choose_the_proxy_by_scheme() {
    let both = outgoing(&[
        ("HTTPS_PROXY", "http://me:sk-secret@secure.example:3128"),
        ("http_proxy", "plain.example:8080"),
        ("ALL_PROXY", "socks5h://all.example"),
    ]);
    let secure = "through http://***@secure.example:3128 (HTTPS_PROXY)";
    assert_eq!(route(&both, "https://api.openai.com/v1", true), secure);
    let plain = "through plain.example:8080 (http_proxy)";
    assert_eq!(route(&both, "http://models.example/", false), plain);
    let all = outgoing(&[("HTTPS_PROXY", " "), ("all_proxy", "socks5h://all.example")]);
    let through = "through socks5h://all.example (all_proxy)";
    assert_eq!(route(&all, "https://api.openai.com", true), through);
    assert_eq!(route(&all, "http://a.example", false), through);
    assert_eq!(route(&outgoing(&[]), "https://a.example", true), "directly");
}

#[test]
fn credentials_without_tls_go_through_a_proxy_of_the_settings_only() {
    let all = outgoing(&[("ALL_PROXY", "http://proxy.example")]);
    let address = "http://a.example/v1";
    assert_eq!(
        route(&all, address, true),
        "directly (credentials without TLS)"
    );
    let set = ProxySetting::Through(Secret::new("http://u:p@own.example"));
    let found = all.find_route(&Url::parse(address).unwrap(), true, &set);
    assert_eq!(
        found.describe(),
        "through http://***@own.example (providers.NAME.proxy)"
    );
    let none = all.find_route(
        &Url::parse("https://a.example").unwrap(),
        true,
        &ProxySetting::Direct,
    );
    assert_eq!(none.proxy, None);
}

#[test]
fn private_addresses_are_reached_directly() {
    let all = outgoing(&[("ALL_PROXY", "http://proxy.example")]);
    for host in [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "ollama",
        "127.1",
        "0x7f000001",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.2",
        "169.254.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:10.1.2.3]",
        "[fd00::1]",
        "[fe80::1]",
    ] {
        let found = route(&all, &format!("https://{host}:8443/v1"), false);
        assert_eq!(found, "directly (its address is private)", "{host}");
    }
    for host in [
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "[2001:4860::1]",
        "a.b",
    ] {
        let found = route(&all, &format!("https://{host}/v1"), false);
        assert_eq!(found, "through http://proxy.example (ALL_PROXY)", "{host}");
    }
}

#[test]
fn no_proxy_names_domains_networks_and_ports() {
    let excepted = |no_proxy: &str, address: &str| {
        let variables = [
            ("ALL_PROXY", "http://proxy.example"),
            ("no_proxy", no_proxy),
        ];
        route(&outgoing(&variables), address, false) == "directly (NO_PROXY)"
    };
    for (no_proxy, address) in [
        ("*", "https://a.example"),
        ("corp.example", "https://corp.example"),
        ("other, CORP.example", "https://llm.corp.example"),
        (".corp.example", "https://llm.corp.example"),
        ("other *.corp.example", "https://llm.corp.example"),
        ("corp.example:8443", "https://corp.example:8443"),
        ("corp.example:443", "https://corp.example"),
        ("8.8.0.0/16", "https://8.8.4.4"),
        ("2001:db8::/32", "https://[2001:db8::1]"),
    ] {
        assert!(excepted(no_proxy, address), "{no_proxy} {address}");
    }
    for (no_proxy, address) in [
        ("", "https://a.example"),
        (":,::,[,*.,x:", "https://a.example"),
        ("corp.example", "https://notcorp.example"),
        ("corp.example:80", "https://corp.example"),
        ("8.8.0.0/16", "https://8.9.4.4"),
    ] {
        assert!(!excepted(no_proxy, address), "{no_proxy} {address}");
    }
}

#[test]
fn an_address_that_is_none_is_named_and_not_shown() {
    let variables = [
        ("HTTPS_PROXY", "ftp://me:sk-secret@proxy"),
        ("HTTP_PROXY", "http://proxy"),
    ];
    let found = find_unusable_proxies(&Environment::from_iter(variables));
    assert_eq!(found.len(), 1);
    assert!(!found[0].to_string().contains("sk-secret"), "{}", found[0]);
    assert_eq!(
        route(&outgoing(&variables), "https://a.example", true),
        "directly"
    );
}
