//! The variables of the environment, as an input: only [`Environment::from_process`] reads those of the process.

use std::{collections::BTreeMap, fmt};

/// The variables of the environment.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Shows names only, since values can be keys.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Leaves out variables that are not Unicode: no setting can use them.
    pub fn from_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }

    pub(crate) fn get_variable(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let owned = |(name, value): (K, V)| (name.into(), value.into());
        Self(variables.into_iter().map(owned).collect())
    }
}
