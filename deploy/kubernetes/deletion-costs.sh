#!/bin/sh
# Tell Kubernetes what the end of each worker pod would cost, so that a smaller Deployment loses idle pods first.
# Run it every minute (a CronJob) where `forebay` and `kubectl` are; FOREBAY_URL names the server, FOREBAY_API_KEY
# a key of scope admin. The service account may get and patch pods of the namespace. A pod that is gone meanwhile,
# or whose annotation says the same already, is passed over. Ends with 1 when the server does not answer.
set -eu

# Every busy pod costs what it runs; of idle ones the minutes count, so that at rest few annotations change.
costs=$(forebay nodes --costs)
printf '%s\n' "$costs" | while read -r pod cost; do
    [ -n "$pod" ] || continue
    [ "$cost" -ge 0 ] || cost=$((cost / 60))
    had=$(kubectl get pod "$pod" --ignore-not-found \
        --output 'jsonpath={.metadata.name} {.metadata.annotations.controller\.kubernetes\.io/pod-deletion-cost}')
    case "$had" in
    "" | "$pod $cost") continue ;;
    esac
    kubectl annotate pod "$pod" --overwrite "controller.kubernetes.io/pod-deletion-cost=$cost" ||
        printf 'deletion-costs: %s was not told\n' "$pod" >&2
done
