//! The files as they are in the binary.

use std::{collections::BTreeSet, fs, path::Path};

use http::{HeaderMap, HeaderValue, StatusCode, header::IF_NONE_MATCH};

use super::{FILES, answer_file, find_file, has_file};

fn asking(tags: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(tags))])
}

#[test]
fn every_file_of_the_folder_is_served_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/dashboard/assets");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let there: BTreeSet<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let served: BTreeSet<_> = FILES.iter().map(|it| it.path[1..].to_owned()).collect();
    assert_eq!(there, served);
    for path in ["/", "", "/main.js", "/page.css"] {
        assert!(has_file(path), "{path}");
    }
    for path in [
        "/index.htm",
        "/index.html",
        "/x",
        "//",
        "/main.js/",
        "main.js",
        "/assets/main.js",
    ] {
        assert!(!has_file(path), "{path}");
    }
}

#[test]
fn what_the_reader_has_is_not_sent_again() {
    let tag = find_file("/").unwrap().tag.to_str().unwrap();
    let status = |path, headers: &HeaderMap| answer_file(path, headers).unwrap().status();
    let same = |tags: &str| {
        let headers = asking(String::leak(tags.to_owned()));
        status("/", &headers) == StatusCode::NOT_MODIFIED
    };
    assert!(same(tag));
    assert!(same(&format!("\"x\", W/{tag}")));
    assert!(same("*"));
    assert!(!same("\"x\""));
    assert!(!same(tag.trim_matches('"')));
    assert_eq!(status("/", &HeaderMap::new()), StatusCode::OK);
    assert_eq!(status("", &asking("*")), StatusCode::PERMANENT_REDIRECT);
}

/// The policy would stop the one in a browser; this says so before.
#[test]
fn nothing_is_inline_and_nothing_is_from_elsewhere() {
    let mut read = 0;
    for file in FILES.iter() {
        let text = str::from_utf8(file.bytes).unwrap();
        for never in [
            " style=",
            " onclick=",
            "<style",
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "@import",
            "url(http",
            "url(//",
        ] {
            assert!(!text.contains(never), "{never} in {}", file.path);
        }
        // Names of XML, which nobody fetches.
        let left = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!left.contains("http://"), "{}", file.path);
        assert!(!left.contains("https://"), "{}", file.path);
        read += 1;
    }
    assert!(read > 10);
}
