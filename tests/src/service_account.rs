//! Credentials with only the rights that a test grants: a ServiceAccount, its token, and a kubeconfig file that holds it.

use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::Outcome;
use crate::apiserver::ApiServer;

/// The API group, resources and verbs of one rule, as RBAC spells them.
pub type Rule<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

/// What the gateway needs in one namespace (operator-facing contract: Pods, Services and ModelDeployments, read only).
pub const GATEWAY_RULES: &[Rule<'static>] =
    &[("", &["pods", "services"], &["get", "list", "watch"]), ("worker.gpustack.ai", &["modeldeployments"], &["get", "list", "watch"])];

/// Creates a ServiceAccount without rights.
pub async fn create_service_account(client: &Client, namespace: &str, name: &str) -> Outcome<()> {
    let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::<ServiceAccount>::namespaced(client.clone(), namespace).create(&PostParams::default(), &account).await?;
    Ok(())
}

/// Grants it rules in its namespace, by a Role and a RoleBinding of the same name.
pub async fn grant(client: &Client, namespace: &str, name: &str, rules: &[Rule<'_>]) -> Outcome<()> {
    let rules: Vec<_> =
        rules.iter().map(|(group, resources, verbs)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs})).collect();
    let role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules}))?;
    Api::<Role>::namespaced(client.clone(), namespace).create(&PostParams::default(), &role).await?;
    let binding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }))?;
    Api::<RoleBinding>::namespaced(client.clone(), namespace).create(&PostParams::default(), &binding).await?;
    Ok(())
}

/// A real token of a ServiceAccount, good for an hour.
pub async fn token(client: &Client, namespace: &str, name: &str) -> Outcome<String> {
    let request = TokenRequest { spec: TokenRequestSpec { audiences: vec![], ..Default::default() }, ..Default::default() };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let answer: TokenRequest = accounts.create_subresource("token", name, &PostParams::default(), &request).await?;
    Ok(answer.status.ok_or("the token request was answered without a token")?.token)
}

/// A kubeconfig file that acts as the ServiceAccount.
pub async fn kubeconfig(server: &ApiServer, client: &Client, namespace: &str, name: &str) -> Outcome<PathBuf> {
    let token = token(client, namespace, name).await?;
    server.write_kubeconfig(&format!("{namespace}-{name}"), &token, namespace)
}
