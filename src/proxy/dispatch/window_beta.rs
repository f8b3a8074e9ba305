//! Handles a refusal of the beta that the suffix `[1m]` of a model's name asks for: the request is sent again without the
//! beta, planned for the window that the model has without it. Like the lesson of an overflow, this lesson holds for the
//! account until it expires. A beta that the client itself sends is not removed.

use super::fallbacks::look_up_window;
use crate::{
    provider::Target,
    proxy::{ClientRequest, ProviderRequest, outgoing::find_plain_scope, plan::plan_request},
};

/// Learns that the account does not have the beta, and plans the request for the window without it. Returns whether there is
/// another request to send. `first`: the first candidate.
pub(super) fn plan_without_window_beta(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    first: Option<&Target>,
) -> bool {
    let (app, target) = (&request.app, &mut prepared.target);
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
    let planned = prepared.planned.as_deref();
    if let Some((followed, planned)) = request.followed_conversation().zip(planned) {
        let (target, compaction) = (prepared.target.clone(), planned.compaction.clone());
        let planned = plan_request(followed, &target, first.unwrap_or(&target), compaction);
        prepared.set_plan(followed, planned);
    }
    prepared.head.added_window_betas(&prepared.target) == 0
}
