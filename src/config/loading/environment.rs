//! The environment as an input: only [`Environment::from_process`] reads that of the process.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

/// The variables of the environment, and the working directory.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// `None`: nothing is looked for there.
    folder: Option<PathBuf>,
    /// Whether the running program was built there.
    is_own: bool,
}

/// Shows names only, since values can be keys.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Environment {
    /// Leaves out variables that are not Unicode: no setting can use them.
    pub fn from_process() -> Self {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let program = std::env::current_exe().unwrap_or_default();
        Self::from_iter(variables).in_folder(Path::new(""), &program)
    }

    /// The same for a program that runs in a folder.
    ///
    /// SECURITY: `target` is not followed where it is a link, so that no repository can claim a program by one.
    pub(crate) fn in_folder(mut self, folder: &Path, program: &Path) -> Self {
        let whole = fs::canonicalize(folder.join("."));
        self.is_own = whole.is_ok_and(|folder| {
            let program = fs::canonicalize(program);
            program.is_ok_and(|program| program.starts_with(folder.join("target")))
        });
        self.folder = Some(folder.to_owned());
        self
    }

    pub(crate) fn working_folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The working directory, where the running program was built in it.
    pub(crate) fn own_folder(&self) -> Option<&Path> {
        self.working_folder().filter(|_| self.is_own)
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&String, &String)> {
        self.variables.iter()
    }

    /// The folder that a variable names; `HOME` is the user's home on any system. A relative path does not count, as the
    /// XDG base directory specification has it: it would lead into the working directory.
    pub(crate) fn find_folder(&self, variable: &str) -> Option<PathBuf> {
        let named = |variable: &str| {
            // Of several with `:` between them, the first.
            let path = std::env::split_paths(self.get_variable(variable)?).next();
            path.filter(|path| path.is_absolute())
        };
        let instead = (variable == "HOME").then_some("USERPROFILE");
        named(variable).or_else(|| named(instead?))
    }

    pub(crate) fn get_variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let owned = |(name, value): (K, V)| (name.into(), value.into());
        Self {
            variables: variables.into_iter().map(owned).collect(),
            ..Self::default()
        }
    }
}
