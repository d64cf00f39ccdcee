/** A picture in a user's message. A remote one is shown as a link: loading it would tell its host who reads this. */

import type { ReactNode } from "react";
import { safeUrl } from "../markdown/safe-url";

const OWN = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,/;

export function Picture({ url }: { readonly url: string }): ReactNode {
  if (OWN.test(url)) return <img className="picture" src={url} alt="Picture" />;
  const address = safeUrl(url);
  if (address === null) return <span>(picture)</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer nofollow">
      Picture
    </a>
  );
}
