//! The files of the dashboard in the binary.

use std::{collections::BTreeSet, fs, path::Path};

use http::{HeaderMap, HeaderValue, StatusCode, header::IF_NONE_MATCH};

use super::{FILES, answer_file, find_file, has_file};

fn if_none_match(tags: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(tags))])
}

#[test]
fn every_file_of_the_folder_is_served_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/dashboard/assets");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let paths = FILES.iter().map(|file| file.path[1..].to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), paths.collect());
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
fn unchanged_files_are_not_sent_again() {
    let tag = find_file("/").unwrap().tag.to_str().unwrap();
    let status = |path, headers: &HeaderMap| answer_file(path, headers).unwrap().status();
    let same = |tags: &str| {
        let headers = if_none_match(String::leak(tags.to_owned()));
        status("/", &headers) == StatusCode::NOT_MODIFIED
    };
    assert!(same(tag));
    assert!(same(&format!("\"x\", W/{tag}")));
    assert!(same("*"));
    assert!(!same("\"x\""));
    assert!(!same(tag.trim_matches('"')));
    assert_eq!(status("/", &HeaderMap::new()), StatusCode::OK);
    assert_eq!(
        status("", &if_none_match("*")),
        StatusCode::PERMANENT_REDIRECT
    );
}

/// Finds before a browser does what the content security policy would block.
#[test]
fn no_file_has_inline_scripts_or_loads_from_elsewhere() {
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
        // An XML namespace, which is not fetched.
        let rest = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains("http://"), "{}", file.path);
        assert!(!rest.contains("https://"), "{}", file.path);
        read += 1;
    }
    assert!(read > 10);
}
