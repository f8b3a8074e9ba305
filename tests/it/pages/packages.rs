//! The names of the packages: `plimsoll` alone is a stranger's in the registries, and so may a scope be.

use super::{documents, files, read, root};

/// Commands after which the name of a package stands.
const COMMANDS: [&str; 6] = [
    "pip install ",
    "uvx ",
    "npx ",
    "npm install --global ",
    "cargo install ",
    "cargo binstall ",
];

#[test]
fn nothing_names_a_package_that_is_not_ours() {
    let mut texts: Vec<_> = documents()
        .into_iter()
        .map(|page| (page.path, page.text))
        .collect();
    let others = [
        "CHANGELOG.md",
        "packaging/wheel",
        "packaging/install.sh",
        "packaging/npm/pack",
        "packaging/npm/plimsoll.js",
    ];
    let workflows = files(&root().join(".github"), "yml").into_iter();
    let workflows = workflows.map(|it| {
        it.strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    });
    let others = others.into_iter().map(str::to_owned).chain(workflows);
    texts.extend(others.map(|path| (path.clone(), read(&path))));
    let mut seen = 0;
    for (path, text) in texts {
        assert!(!text.contains("@plimsoll"), "{path}: a scope");
        for command in COMMANDS {
            for named in text
                .split(command)
                .skip(1)
                .filter(|rest| rest.starts_with("plimsoll"))
            {
                seen += 1;
                assert!(
                    named.starts_with("plimsoll-proxy"),
                    "{path}: {command}{:.30}",
                    named
                );
            }
        }
    }
    assert!(seen >= 10, "{seen}");
    assert!(read("Cargo.toml").contains("\nname = \"plimsoll-proxy\"\n"));
}

/// What `cargo binstall` fetches is what `packaging/archive` makes, for each program of the crate.
#[test]
fn the_archive_is_where_binstall_looks() {
    let (manifest, archive) = (read("Cargo.toml"), read("packaging/archive"));
    assert!(
        manifest.contains("/plimsoll-{ target }.tgz\"") && archive.contains("name=\"plimsoll-$2\"")
    );
    assert!(manifest.contains("bin-dir = \"plimsoll-{ target }/{ bin }{ binary-ext }\""));
    let programs: Vec<_> = manifest.split("[[bin]]\nname = \"").skip(1).collect();
    assert_eq!(programs.len(), 2);
    for program in programs {
        let name = program.split('"').next().unwrap();
        assert!(
            archive.contains(&format!("\"$place/$name/{name}$end\"")),
            "{name}"
        );
    }
}
