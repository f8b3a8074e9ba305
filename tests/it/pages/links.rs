//! Links between the pages, and the contents of the book.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

use super::{Page, book, page, root};

/// The addresses that a page links to, but for those elsewhere.
fn links(page: &Page) -> Vec<&str> {
    let prose = page.prose();
    let found = prose.flat_map(|line| {
        let links = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let images = line
            .split("src=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        links.chain(images)
    });
    found.filter(|link| !link.starts_with("http")).collect()
}

/// A heading's anchor, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|it| match it {
        ' ' => Some('-'),
        '-' | '_' => Some(it),
        it => it.is_alphanumeric().then(|| it.to_ascii_lowercase()),
    });
    kept.collect()
}

fn anchors(page: &Page) -> BTreeSet<String> {
    let headings = page.prose().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// The path without `..`, from the root of the repository.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(normal.pop(), "{} leads outside", path.display()),
            part => normal.push(part),
        }
    }
    normal
}

/// What the link of a page leads to, and the anchor there.
fn resolve<'a>(page: &Page, link: &'a str) -> (PathBuf, Option<&'a str>) {
    let (target, anchor) = match link.split_once('#') {
        Some((target, anchor)) => (target, Some(anchor)),
        None => (link, None),
    };
    let path = Path::new(&page.path);
    match target {
        "" => (path.to_owned(), anchor),
        target => (normal(&path.with_file_name(target)), anchor),
    }
}

/// The pages at the root of the repository.
fn root_pages() -> Vec<Page> {
    let names = fs::read_dir(root())
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let names = names.filter_map(|it| it.into_string().ok());
    names
        .filter(|it| it.ends_with(".md"))
        .map(|it| page(&it))
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for from in book().iter().chain(&root_pages()) {
        for link in links(from) {
            seen += 1;
            let (target, anchor) = resolve(from, link);
            let is_inside = !from.path.starts_with("docs") || target.starts_with("docs");
            assert!(is_inside, "{}: {link} leads out of the book", from.path);
            assert!(
                root().join(&target).exists(),
                "{}: no file {link}",
                from.path
            );
            if let Some(anchor) = anchor {
                let anchors = anchors(&page(target.to_str().unwrap()));
                assert!(anchors.contains(anchor), "{}: no heading {link}", from.path);
            }
        }
    }
    assert!(seen > 80, "{seen} links");
}

#[test]
fn every_page_stands_in_the_contents() {
    let summary = page("docs/SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links(&summary)
        .iter()
        .map(|link| resolve(&summary, link).0)
        .collect();
    let pages = book();
    let pages = pages
        .iter()
        .filter(|it| it.path != summary.path)
        .map(|it| PathBuf::from(&it.path));
    assert_eq!(listed, pages.collect());
}

#[test]
fn the_readme_is_short() {
    let lines = page("README.md").text.lines().count();
    assert!(lines <= 250, "{lines} lines");
}

#[test]
fn anchors_are_made_as_others_make_them() {
    for (heading, expected) in [
        (" Errors of the proxy", "errors-of-the-proxy"),
        (" OpenAI SDK for Node", "openai-sdk-for-node"),
        (" pydantic-ai", "pydantic-ai"),
        (" What's `new`?", "whats-new"),
    ] {
        assert_eq!(anchor(heading), expected);
    }
}
