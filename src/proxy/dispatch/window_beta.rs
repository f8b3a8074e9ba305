//! Handles a refusal of the beta that the suffix `[1m]` of a model's name asks for: the request is sent again without the
//! beta, planned for the window that the model has without it. Like the lesson of an overflow, this lesson holds for the
//! account until it expires. A beta that the client itself sends is not removed.

use super::fallbacks::look_up_window;
use crate::{
    provider::Target,
    proxy::{
        ClientRequest, PlacedRequest,
        outgoing::find_plain_scope,
        plan::{log_cuts, plan_request},
    },
};

/// Learns that the account does not have the beta, and plans the request for the window without it. Returns whether there is
/// another request to send. `home`: the first candidate.
pub(super) fn plan_without_window_beta(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    home: Option<&Target>,
) -> bool {
    let (app, target) = (&request.app, &mut placed.target);
    let plain = find_plain_scope(app, &request.parts, &target.provider);
    app.registry.learn_refused_betas(target, plain);
    app.replica_sync.mark_changed(target);
    look_up_window(request, target);
    let (provider, model) = (&*target.provider.name, &*target.model);
    let window = target.window.tokens;
    tracing::warn!(
        provider,
        model,
        window,
        "{provider} refuses the beta of the long window for {model}; its window is {window} tokens"
    );
    let planned = placed.planned.as_deref();
    if let Some((followed, planned)) = request.followed_conversation().zip(planned) {
        let (target, compaction) = (placed.target.clone(), planned.compaction.clone());
        let planned = plan_request(followed, &target, home.unwrap_or(&target), compaction);
        log_cuts(followed.session.inherited.session, &planned);
        placed.set_plan(followed, planned);
    }
    placed.head.added_window_betas(&placed.target) == 0
}
