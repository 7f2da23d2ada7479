//go:build tools

// Package apiserver pins the real Kubernetes parts that the tests run against. It is never compiled: the imports below
// only keep the three commands, and with them every version, in go.mod and go.sum. The script `build` makes the binaries.
package apiserver

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
