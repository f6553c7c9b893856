# awk -f only.awk NAMES SOURCE: the source without the tests that are not named, a blank line for each of
# theirs. A name is Suite.Test of googletest, or the title of a story. Fails where one is not there.

# how a test of that name begins
function opening(name) {
    if (name !~ /^[A-Za-z0-9_]+\.[A-Za-z0-9_]+$/) return "\"" name "\""
    sub(/\./, ", ", name)
    return "(" name ")"
}
function is_wanted(head,    i) {
    gsub(/"[ \n]*"/, "", head) # literals that stand side by side are one
    for (i = 1; i <= count; ++i) if (index(head, wanted[i])) return 1
    return 0
}
function end_of_test() {
    inside = 0
    if (is_wanted(head)) {
        ++found
    } else {
        gsub(/[^\n]/, "", test)
    }
    printf "%s", test
}

NR == FNR { wanted[++count] = opening($0); next }
FNR == 1 { printf "#line 1 \"%s\"\n", FILENAME }
/^(TEMPLATE_)?TEST/ { inside = in_head = 1; test = head = "" }
!inside { print; next }
{
    test = test $0 "\n"
    if (in_head) head = head $0 "\n"
    if (/^}/ || (in_head && /}( *\/\/.*)?$/)) end_of_test()
    if (/{( *\/\/.*)?$/) in_head = 0
}
END { exit found != count }
